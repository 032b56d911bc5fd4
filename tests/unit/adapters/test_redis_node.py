"""What a process says to a server when they meet (R23)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.redis.node import NEW_US, TRIES, GateParams, Node, ScriptRun
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.key import Keyspace
from fairlead.testing._kit.clock import ManualClock

_HEAD = Struct("<ddd")


class Line:
    """A connection to a server that hears everything; *cut*: its answer to the greeting is lost."""

    is_ready = False

    def __init__(self, *, cut: bool = False) -> None:
        self.cut = cut
        self.hint_us = -1.0

    async def call(self, *command: object) -> bytes:
        return b"run_id:abc\r\nmaxmemory_policy:noeviction\r\n"

    async def run(self, script: object, calls: Sequence[tuple[Sequence[bytes], Sequence[bytes]]]) -> Any:
        ((_, args),) = calls
        _, _, self.hint_us = _HEAD.unpack_from(args[0])
        if self.cut:
            raise LimiterUnavailableError("the connection broke")
        return [[Struct("<dd").pack(2.0, 1.0)]]


class Judge:
    """A connection to a server whose clock goes as ours does, and which does as the script does.

    We are frozen before we read its answers; the next batches are late by as much as *late_s* says of each.
    """

    is_ready = True
    ahead_s = 1e9

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.frozen_s = 0.0
        self.late_s: list[float] = []
        self.birth_us = 1.0
        self.cut = False
        self.told: list[tuple[float, float]] = []
        """Of each run how far from the time is what it was told the time was, in s, and what it doubts."""
        self.judged = 0
        self.known_s = 0.0
        """For how long the one who asks has known the time."""

    async def ready(self) -> None:
        return None

    async def call(self, *command: object) -> bytes:
        return b"run_id:abc\r\nmaxmemory_policy:noeviction\r\n"

    async def run(self, script: object, calls: Sequence[Any], *, asking: bool = False) -> Any:
        if self.late_s:
            await self._clock.advance(self.late_s.pop(0))
        if self.cut:
            self.is_ready = False
            raise LimiterUnavailableError("the connection broke")
        now_us = (self._clock.monotonic() + self.ahead_s) * 1e6
        replies = [self._one(now_us, args[0]) for _, args in calls]
        await self._clock.advance(self.frozen_s)
        return replies

    def _one(self, now_us: float, head: bytes) -> Any:
        expected_us, *_, doubted_us, known_us = Struct("<dddddddd").unpack_from(head)
        self.known_s = known_us / 1e6
        surprised_s = (now_us - expected_us) / 1e6 if expected_us else 0.0
        self.told.append((round(surprised_s, 1), doubted_us))
        if abs(surprised_s) > 2 and not doubted_us:
            return Struct("<dd").pack(now_us, self.birth_us)
        if abs(surprised_s) > 2 and doubted_us == self.birth_us:
            self.birth_us = now_us
        self.judged += 1
        return [Struct("<dd").pack(now_us, self.birth_us)]

    def require_reconnect(self) -> None:
        return None


class Breaking(Judge):
    """It hears the second of two calls too late, and the connection breaks as that is sent again."""

    async def run(self, script: object, calls: Sequence[Any], *, asking: bool = False) -> Any:
        self.cut = len(calls) == 1
        replies = await super().run(script, calls, asking=asking)
        return [replies[0], replies[1][0]]


def a_node(is_new: Callable[[], bool], clock: ManualClock | None = None) -> Node:
    terms = GateParams(Keyspace().prefix.encode(), 30.0, 0, 0, 0)
    return Node(Secret("redis://localhost"), b"m", terms, clock or ManualClock(), is_new=is_new)


async def greeted(node: Node, line: Line) -> float:
    """What it was told of the installation's age."""
    await node._greet(line)  # type: ignore[arg-type]
    return line.hint_us


async def test_new_is_said_once_even_if_the_answer_was_lost() -> None:
    """The server may have heard it, and others may have been granted slots since."""
    node = a_node(lambda: True)
    with pytest.raises(LimiterUnavailableError):
        await greeted(node, first := Line(cut=True))
    assert first.hint_us == NEW_US
    assert await greeted(node, Line()) == 0


async def test_whether_it_is_new_is_asked_when_the_server_is_met() -> None:
    knows = [False]
    node = a_node(lambda: knows[0])
    knows[0] = True
    assert await greeted(node, Line()) == NEW_US
    assert await greeted(a_node(lambda: False), Line()) == 0


async def judged(node: Node) -> Any:
    """What becomes of a batch."""
    (reply,) = await node.run([ScriptRun(b"m", 0, ())])
    return reply


async def node_and_judge(clock: ManualClock) -> tuple[Node, Judge]:
    """A node that has just heard what time it is on its server."""
    node, judge = a_node(lambda: False, clock), Judge(clock)
    node._idle.append(judge)  # type: ignore[arg-type]
    await node._greet(judge)  # type: ignore[arg-type]
    judge.told.clear()
    judge.judged = 0
    return node, judge


@pytest.mark.parametrize("is_known", [False, True])
async def test_frozen_process_reports_no_clock_change(is_known: bool) -> None:
    """An answer that is read late tells little of the time."""
    clock = ManualClock()
    node = a_node(lambda: False, clock)
    judge = Judge(clock)
    node._idle.append(judge)  # type: ignore[arg-type]
    for frozen_s in (0.01, 60.0, 0.01) if is_known else (60.0, 0.01):
        judge.frozen_s = frozen_s
        await judged(node)
        assert judge.told.pop() == (0.0, 0)


async def test_a_clock_that_was_set_is_told_once() -> None:
    node, judge = await node_and_judge(ManualClock())
    for ahead_s in (1e9, 1e9, 1e9 + 600, 1e9 + 600, 1e9 - 600, 1e9 - 600):
        judge.ahead_s = ahead_s
        assert await judged(node) == []
    assert [surprised_s for surprised_s, doubted_us in judge.told if doubted_us] == [600, -1200]
    assert judge.told == [
        (0, 0),
        (0, 0),
        (600, 0),
        (600, 1),
        (0, 0),
        (-1200, 0),
        (-1200, (1e9 + 600) * 1e6),
        (0, 0),
    ]


async def test_a_batch_that_was_held_up_is_sent_again_and_accuses_no_clock() -> None:
    node, judge = await node_and_judge(ManualClock())
    judge.late_s = [3.0]
    assert await judged(node) == []
    assert judge.told == [(3.0, 0), (0.0, 0)]
    assert judge.judged == 1
    assert judge.birth_us == 1


async def test_a_batch_that_is_held_up_each_time_finds_the_server_away() -> None:
    node, judge = await node_and_judge(ManualClock())
    judge.late_s = [2.5] * TRIES
    reply = await judged(node)
    assert isinstance(reply, LimiterUnavailableError)
    assert judge.told == [(2.5, 0)] * TRIES
    assert await judged(node) == []


async def test_an_answer_outlives_the_connection_that_breaks_as_another_call_is_sent_again() -> None:
    """Who was granted a slot has it, and would keep others from it for as long as its lease goes."""
    clock = ManualClock()
    node, judge = await node_and_judge(clock)
    node._idle[:] = [breaking := Breaking(clock)]  # type: ignore[list-item]
    reply, lost = await node.run([ScriptRun(b"m", 0, ()), ScriptRun(b"n", 0, ())])
    assert reply == []
    assert isinstance(lost, LimiterUnavailableError)
    assert (judge.judged, breaking.judged) == (0, 2)
    assert node._offset_us is None, "as behind every connection that was lost"


async def test_a_clock_that_was_set_is_found_behind_a_batch_that_was_held_up() -> None:
    """The answer to a late batch tells, too, where the clock is further ahead than it was late."""
    node, judge = await node_and_judge(ManualClock())
    judge.late_s, judge.ahead_s = [3.0], judge.ahead_s + 600
    assert await judged(node) == []
    assert judge.told == [(603, 0), (600, 1)]


async def test_clock_change_found_by_another_process_is_not_reported_again() -> None:
    """Else each process would empty the buckets with its first batch after the jump, be it hours later."""
    clock = ManualClock()
    (first, judge), second = await node_and_judge(clock), a_node(lambda: False, clock)
    await second._greet(judge)  # type: ignore[arg-type]
    judge.ahead_s += 600
    assert await judged(first) == []
    found_us = judge.birth_us
    second._idle.append(judge)  # type: ignore[arg-type]
    await clock.advance(60.0)
    for _ in range(2):
        assert await judged(second) == []
    assert judge.birth_us == found_us
    assert judge.told[-1] == (0, 0)


async def test_clock_change_is_reported_after_a_loss_of_data() -> None:
    """The birth that counts is the one heard of last."""
    node, judge = await node_and_judge(ManualClock())
    judge.birth_us = 5.0
    await judged(node)
    judge.ahead_s += 600
    await judged(node)
    assert judge.told[-1] == (600, 5)


async def test_after_a_connection_was_lost_the_time_is_asked_anew() -> None:
    """Our machine may have slept, and its clock stood still: nobody set the server's."""
    node, judge = await node_and_judge(ManualClock())
    judge.cut = True
    with pytest.raises(LimiterUnavailableError):
        await judged(node)
    judge.cut, judge.is_ready, judge.ahead_s = False, True, judge.ahead_s + 3600
    await node._greet(judge)  # type: ignore[arg-type]
    await judged(node)
    assert judge.told == [(0, 0), (0, 0)]
    assert judge.birth_us == 1


async def test_another_connection_beside_the_first_overlooks_no_clock_that_was_set() -> None:
    node, judge = await node_and_judge(ManualClock())
    judge.ahead_s += 600
    await node._greet(judge)  # type: ignore[arg-type]
    await judged(node)
    assert judge.told == [(0, 0), (600, 0), (600, 1)]


async def test_clocks_that_drift_apart_overnight_are_not_set() -> None:
    """Two of them may each be kept right, and not by the same time."""
    clock = ManualClock()
    node, judge = await node_and_judge(clock)
    await clock.advance(10 * 3600.0)
    judge.ahead_s += 3
    assert await judged(node) == []
    assert judge.told == [(3, 0), (0, 0)]


async def test_for_how_long_the_time_is_known_counts_from_when_it_was_learned() -> None:
    """Who has it from a clock that was set is no witness of what it was before."""
    clock = ManualClock()
    node, judge = await node_and_judge(clock)
    known_s = []
    for ahead_s in (0, 0, 600, 0):
        await clock.advance(40.0)
        judge.ahead_s += ahead_s
        await judged(node)
        known_s.append(judge.known_s)
    assert known_s == [40, 80, 0, 40]
    node._expire_idle(Line())  # type: ignore[arg-type]
    await node._greet(judge)  # type: ignore[arg-type]
    await judged(node)
    assert judge.known_s == 0
