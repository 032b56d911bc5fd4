"""What a process says to a server when they meet (R23)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import pytest

from fairlead.adapters.redis.node import NEW_US, Call, Node, Terms
from fairlead.errors import GateUnavailable
from fairlead.policy.gate.key import Keyspace
from fairlead.secret import Secret
from fairlead.testing.clock import ManualClock

_HEAD = Struct("<ddd")


class Line:
    """A connection to a server that hears everything; *cut*: its answer to the greeting is lost."""

    def __init__(self, *, cut: bool = False) -> None:
        self.cut = cut
        self.hint_us = -1.0

    async def call(self, *command: object) -> bytes:
        return b"run_id:abc\r\nmaxmemory_policy:noeviction\r\n"

    async def run(self, script: object, calls: Sequence[tuple[Sequence[bytes], Sequence[bytes]]]) -> Any:
        ((_, args),) = calls
        _, _, self.hint_us = _HEAD.unpack_from(args[0])
        if self.cut:
            raise GateUnavailable("the connection broke")
        return [[Struct("<dd").pack(2.0, 1.0)]]


class Judge:
    """A connection to a server whose clock goes as ours does; we are frozen before we read its answers."""

    is_ready = True
    ahead_s = 1e9

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.frozen_s = 0.0
        self.surprised_s = 0.0
        """How far from the time is what it was told the time was."""

    async def ready(self) -> None:
        return None

    async def run(self, script: object, calls: Sequence[Any], *, asking: bool) -> Any:
        now_us = (self._clock.monotonic() + self.ahead_s) * 1e6
        for _, args in calls:
            (expected_us,) = Struct("<d").unpack_from(args[0])
            self.surprised_s = abs(now_us - expected_us) / 1e6 if expected_us else 0.0
        await self._clock.advance(self.frozen_s)
        return [[Struct("<dd").pack(now_us, 1.0)] for _ in calls]


def a_node(is_new: Callable[[], bool], clock: ManualClock | None = None) -> Node:
    terms = Terms(Keyspace().prefix.encode(), 30.0, 0, 0, 0)
    return Node(Secret("redis://localhost"), b"m", terms, clock or ManualClock(), is_new=is_new)


async def greeted(node: Node, line: Line) -> float:
    """What it was told of the installation's age."""
    await node._greet(line)  # type: ignore[arg-type]
    return line.hint_us


async def test_new_is_said_once_even_if_the_answer_was_lost() -> None:
    """The server may have heard it, and others may have been granted slots since."""
    node = a_node(lambda: True)
    with pytest.raises(GateUnavailable):
        await greeted(node, first := Line(cut=True))
    assert first.hint_us == NEW_US
    assert await greeted(node, Line()) == 0


async def test_whether_it_is_new_is_asked_when_the_server_is_met() -> None:
    known = [False]
    node = a_node(lambda: known[0])
    known[0] = True
    assert await greeted(node, Line()) == NEW_US
    assert await greeted(a_node(lambda: False), Line()) == 0


@pytest.mark.parametrize("known", [False, True])
async def test_who_was_frozen_does_not_say_that_the_clock_was_set(known: bool) -> None:
    """An answer that is read late tells little of the time: else all buckets would be emptied for it."""
    clock = ManualClock()
    node = a_node(lambda: False, clock)
    judge = Judge(clock)
    node._links.append(judge)  # type: ignore[arg-type]
    for frozen_s in (0.01, 60.0, 0.01) if known else (60.0, 0.01):
        judge.frozen_s = frozen_s
        await node.judge([Call(b"m", 0, ())])
        assert judge.surprised_s < 0.1


async def test_a_clock_that_was_set_is_told_once() -> None:
    clock = ManualClock()
    node = a_node(lambda: False, clock)
    judge = Judge(clock)
    node._links.append(judge)  # type: ignore[arg-type]
    told = []
    for ahead_s in (1e9, 1e9, 1e9 + 600, 1e9 + 600, 1e9 - 600, 1e9 - 600):
        judge.ahead_s = ahead_s
        await node.judge([Call(b"m", 0, ())])
        told.append(round(judge.surprised_s))
    assert told == [0, 0, 600, 0, 1200, 0]
