"""What a process says to a server when they meet (R23)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import pytest

from fairlead.adapters.redis.node import NEW_US, Node, Terms
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


def a_node(is_new: Callable[[], bool]) -> Node:
    terms = Terms(Keyspace().prefix.encode(), 30.0, 0, 0, 0)
    return Node(Secret("redis://localhost"), b"m", terms, ManualClock(), is_new=is_new)


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
