"""Jobs that the gate has no room for go back into their place, and their group waits."""

from __future__ import annotations

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import Outcome, Rescheduled
from fairlead.errors import LimitExceededError
from fairlead.policy.jobs.lane import Scope
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import IDS, a_job


class Written:
    """What is held; *broken* as a store that is away."""

    def __init__(self) -> None:
        self.holds: list[tuple[str, str, float]] = []
        self.broken = False

    async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
        raise AssertionError

    async def hold(self, tenant: str, group: str, for_s: float, *, reason: str) -> None:
        if self.broken:
            raise ConnectionError
        self.holds.append((tenant, group, for_s))


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(start=100.0)
        self.written = Written()
        self.turn_s = 10.0
        self.executor = Executor(
            [Handler("work", self.run)],
            clock=self.clock,
            draw=lambda: 0.5,
            ids=IDS,
            emit=lambda event: None,
            pauses=self.written,
        )

    async def run(self, context: JobContext) -> None:
        raise LimitExceededError("no room", retry_after_s=self.turn_s)

    async def refused(self, **fields: object) -> Outcome:
        return await self.executor.run(a_job(kind="work", **{"group_key": "shopify/default", **fields}))


async def test_refused_job_keeps_its_place_and_holds_its_group() -> None:
    world = World()
    outcome = await world.refused(tenant_id="acme")
    assert isinstance(outcome, Rescheduled)
    assert outcome.delay_s is None
    assert outcome.failure is None, "no attempt is burnt"
    assert world.written.holds == [("acme", "shopify/default", 10.0)]


async def test_a_hundred_refusals_are_one_write() -> None:
    world = World()
    for later_s in range(100):
        world.turn_s = 10.0 + later_s
        await world.refused()
    assert len(world.written.holds) == 1


async def test_an_earlier_turn_is_written() -> None:
    world = World()
    await world.refused()
    world.turn_s = 4.0
    await world.refused()
    assert [for_s for _, _, for_s in world.written.holds] == [10.0, 4.0]


async def test_a_hold_that_somebody_ended_is_written_again() -> None:
    """Else its jobs would be claimed and refused again and again until its old end."""
    world = World()
    await world.refused()
    await world.clock.advance(1)
    await world.refused()
    assert len(world.written.holds) == 2


async def test_a_turn_that_has_come_is_followed_by_the_next() -> None:
    world = World()
    await world.refused()
    await world.clock.advance(11)
    await world.refused()
    assert len(world.written.holds) == 2


async def test_without_a_group_or_a_store_the_job_itself_waits() -> None:
    world = World()
    first_outcome = await world.refused(group_key="")
    world.written.broken = True
    unwritten = await world.refused()
    for outcome in (first_outcome, unwritten):
        assert isinstance(outcome, Rescheduled)
        assert outcome.delay_s == 10.0
        assert outcome.failure is None
