"""Turns of suspects (R3): whoever was in flight at a crash runs alone, and nobody waits long for that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.jobs.suspects import IDLE_WAIT_S, MAX_IDLE_WAIT_S
from fairlead.engine.ports import MemoryUsage
from fairlead.errors import DependencyUnavailableError
from tests.support.engine import new_job
from tests.support.process import Fleet, Gate, Process

HOUR_S = 3600.0


class Desk:
    """Handlers that take their time on the fleet's clock, and what they began when."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.began: dict[str, list[float]] = {}
        self.ended: dict[str, list[float]] = {}

    def kind(self, kind: str, takes_s: float, timeout_s: float = 60.0) -> Handler:
        async def run(context: JobContext) -> None:
            self.began.setdefault(kind, []).append(self.now)
            await self.fleet.clock.sleep(takes_s)
            self.ended.setdefault(kind, []).append(self.now)

        return Handler(kind, run, timeout_s=timeout_s)

    @property
    def now(self) -> float:
        return self.fleet.clock.monotonic()

    def done(self, kind: str) -> int:
        return len(self.ended.get(kind, []))


async def suspects(fleet: Fleet, kind: str, count: int) -> None:
    """So many jobs that were in flight in a process that died just now."""
    jobs = await fleet.enqueue(*(new_job(kind) for _ in range(count)))
    for job in jobs:
        fleet.database.jobs[job.job_id].crash_count = 1


async def until(
    fleet: Fleet, over: Callable[[], bool], within_s: float, step: Callable[[], Awaitable[object]]
) -> None:
    """Go on second by second, with *each* in every one."""
    for _ in range(int(within_s)):
        if over():
            return
        await step()
        await fleet.advance(1)
        await fleet.jobs.prune({"completed": 0.0}, 100)
    assert over(), f"not within {within_s:g} s"


@pytest.mark.slow
async def test_a_neighbour_of_a_minute_and_twenty_quick_suspects(fleet: Fleet) -> None:
    desk = Desk(fleet)
    handlers = [desk.kind("minute", 60.0, 90.0), desk.kind("quick", 0.1), desk.kind("other", 0.1)]
    await fleet.enqueue(new_job("minute"))
    await fleet.start(*handlers)
    await fleet.advance(1)
    await suspects(fleet, "quick", 20)
    await until(fleet, lambda: desk.done("quick") == 20, 80, lambda: fleet.enqueue(new_job("other")))
    (minute_over,) = desk.ended["minute"]
    assert desk.began["quick"][0] >= minute_over
    assert max(desk.ended["quick"]) < minute_over + 10
    waits = [later - earlier for earlier, later in pairwise(desk.began["other"])]
    assert max(waits) < IDLE_WAIT_S + 8


@pytest.mark.slow
async def test_a_neighbour_of_an_hour_holds_up_others_for_seconds_only(fleet: Fleet) -> None:
    """Nothing begins for 15 s, twice; when the hour is over the suspects have their turn."""
    desk = Desk(fleet)
    handlers = [
        desk.kind("export", HOUR_S, 2 * HOUR_S),
        desk.kind("quick", 0.1),
        desk.kind("other", 0.1),
        desk.kind("token.refresh", 0.5, 90.0),
    ]
    await fleet.enqueue(new_job("export"))
    busy = await fleet.start(*handlers)
    await fleet.advance(1)
    await suspects(fleet, "quick", 20)
    await until(
        fleet,
        lambda: desk.done("quick") == 20,
        HOUR_S + 20,
        lambda: fleet.enqueue(new_job("other"), new_job("token.refresh")),
    )
    (hour_over,) = desk.ended["export"]
    assert desk.began["quick"][0] >= hour_over
    for kind in ("other", "token.refresh"):
        waits = [later - earlier for earlier, later in pairwise(desk.began[kind])]
        assert max(waits) < IDLE_WAIT_S + 3
        assert sum(wait > 3 for wait in waits) <= 2
    assert busy.operations["claim_suspect"] < HOUR_S / 10  # it is not asked again and again


async def test_an_idle_process_has_them_while_another_is_busy_for_an_hour(fleet: Fleet) -> None:
    desk = Desk(fleet)
    handlers = [desk.kind("export", HOUR_S, 2 * HOUR_S), desk.kind("quick", 0.1)]
    await fleet.enqueue(new_job("export"))
    await fleet.start(*handlers)
    await fleet.advance(1)
    await fleet.start(*handlers)
    await suspects(fleet, "quick", 20)
    await fleet.advance(2 * IDLE_WAIT_S)
    assert (desk.done("export"), desk.done("quick")) == (0, 20)


@pytest.mark.slow
async def test_suspects_are_reached_though_every_process_always_has_a_long_job(fleet: Fleet) -> None:
    """Each process makes room, and keeps it; short work goes on all the time."""
    desk = Desk(fleet)
    handlers = [
        desk.kind("export", 600.0, 900.0),
        desk.kind("victim", 5.0),
        desk.kind("other", 0.1),
    ]
    for _ in range(2):
        await fleet.start(*handlers, concurrency=3)
    count = 0

    async def more() -> None:
        nonlocal count
        count += 1
        await fleet.enqueue(new_job("other"), *([new_job("export")] if count % 100 == 1 else []))

    for _ in range(300):
        await more()
        await fleet.advance(1)
    await suspects(fleet, "victim", 40)
    start_mono = desk.now
    exports = desk.done("export")
    await until(fleet, lambda: desk.done("victim") == 40, 1800, more)
    waits = [later - earlier for earlier, later in pairwise(desk.began["other"])]
    assert max(waits) < 60
    assert desk.done("other") > 0.9 * (desk.now - start_mono)
    assert desk.done("export") > exports
    await until(
        fleet, lambda: desk.done("export") > exports + 8, 3600, more
    )  # and they have their turn again


@pytest.mark.slow
async def test_more_than_one_suspect_follows_a_long_drain(fleet: Fleet) -> None:
    """Where others take 30 s, too: else each suspect would cost as much again as it takes."""
    desk = Desk(fleet)
    handlers = [desk.kind("other", 30.0), desk.kind("victim", 29.0)]
    await fleet.start(*handlers)
    count = 0

    async def more() -> None:
        nonlocal count
        count += 1
        await fleet.enqueue(*([new_job("other")] if count % 4 == 1 else []))

    for _ in range(60):
        await more()
        await fleet.advance(1)
    await suspects(fleet, "victim", 8)
    await until(fleet, lambda: desk.done("victim") == 8, 4 * 200, more)
    follow = [later - earlier < 31 for earlier, later in pairwise(desk.began["victim"])]
    assert sum(follow) >= 3
    assert all(later - earlier >= 29 for earlier, later in pairwise(desk.began["victim"]))  # one by one


async def test_suspects_follow_each_other_where_nobody_waits(fleet: Fleet) -> None:
    desk = Desk(fleet)
    await fleet.start(desk.kind("victim", 20.0))
    await fleet.advance(1)
    await suspects(fleet, "victim", 5)
    await fleet.advance(7 + 5 * 21)
    assert desk.done("victim") == 5


@pytest.mark.slow
async def test_a_handler_that_never_ends_lets_others_work(fleet: Fleet) -> None:
    """It ignores its timeout, so its process is never alone: it stands still less and less often."""
    desk = Desk(fleet)
    deaf = Gate("deaf", deaf=True, timeout_s=30.0)
    handlers = [deaf.handler, desk.kind("quick", 0.1), desk.kind("other", 0.1)]
    await fleet.enqueue(new_job("deaf"))
    await fleet.start(*handlers)
    await deaf.wait_running(1)
    await suspects(fleet, "quick", 3)
    await until(fleet, lambda: desk.done("other") == 1600, 1800, lambda: fleet.enqueue(new_job("other")))
    assert desk.done("quick") == 0
    waits = [later - earlier for earlier, later in pairwise(desk.began["other"])]
    assert max(waits) < MAX_IDLE_WAIT_S + 3
    assert sum(wait for wait in waits if wait > 3) < 300
    deaf.open.set()
    await until(fleet, lambda: desk.done("quick") == 3, 300, lambda: fleet.enqueue(new_job("other")))


async def test_slow_refreshes_end_before_the_patience_does(fleet: Fleet) -> None:
    """One begins each second and takes 40: nothing but them runs, and the suspect has its turn."""
    desk = Desk(fleet)
    await fleet.start(desk.kind("token.refresh", 40.0, 90.0), desk.kind("quick", 0.1), concurrency=100)
    for _ in range(60):
        await fleet.enqueue(new_job("token.refresh"))
        await fleet.advance(1)
    await suspects(fleet, "quick", 1)
    await until(fleet, lambda: desk.done("quick") == 1, 600, lambda: fleet.enqueue(new_job("token.refresh")))
    waits = [later - earlier for earlier, later in pairwise(desk.began["token.refresh"])]
    assert max(waits) < 50


async def test_a_suspect_of_which_it_is_not_known_whether_it_began_is_not_handed_back(fleet: Fleet) -> None:
    """The answer to its start is lost: handed back it would look like a run that ended without a crash."""

    async def cut(operation: str) -> None:
        if operation == "start_suspect":
            raise DependencyUnavailableError("the connection was lost")

    desk = Desk(fleet)
    survivor: Process = await fleet.start(desk.kind("quick", 0.1))
    survivor.link.on_answer = cut
    await suspects(fleet, "quick", 1)
    await fleet.advance(4 * IDLE_WAIT_S)
    (row,) = fleet.database.jobs.values()
    assert (row.state.value, row.crash_count) == ("running", 1)
    survivor.link.on_answer = survivor._count
    await fleet.advance(60)
    assert desk.done("quick") == 1


class Memory:
    def __init__(self) -> None:
        self.share = 0.1

    def usage(self) -> MemoryUsage:
        return MemoryUsage(int(self.share * 1000), 1000)


async def test_a_process_without_memory_keeps_no_suspect(fleet: Fleet) -> None:
    desk, memory = Desk(fleet), Memory()
    await fleet.enqueue(new_job("export"))
    busy = await fleet.start(desk.kind("export", HOUR_S, 2 * HOUR_S), desk.kind("quick", 0.1), memory=memory)
    await fleet.advance(1)
    await suspects(fleet, "quick", 1)
    await fleet.advance(3)
    assert (await fleet.jobs.counts())["running"] == 2  # held
    memory.share = 0.95
    await fleet.advance(IDLE_WAIT_S + 1)
    assert await fleet.jobs.counts() == {"running": 1, "available": 1}
    assert busy.worker.running == 1
