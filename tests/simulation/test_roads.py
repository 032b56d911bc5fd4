"""The road to the database: what is lost on it, what is done all the same, and whom it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from typing import Any

import pytest

from fairlead._core.ids import uuid7_from
from fairlead.engine.ports import ClaimFilter
from fairlead.errors import DependencyUnavailableError
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import MemoryDatabase, MemoryJobStore, MemorySessionStore
from tests.simulation.chance import Chance
from tests.simulation.loop import SimLoop
from tests.simulation.machine import WorldClock
from tests.simulation.process import SimProcess
from tests.simulation.roads import DEADLINE_S, JobsRoad, Roads
from tests.support.engine import new_job


class Ground:
    """A database, a process and the road between them."""

    def __init__(self) -> None:
        chance = Chance(1)
        self.loop = SimLoop(chance.sched)
        self.database = MemoryDatabase(WorldClock(self.loop), CountedIds())
        self.roads = Roads(self.loop, self.database, chance)
        self.process = SimProcess("p1", "host-a")
        self.jobs: Any = JobsRoad(self.roads, self.process, MemoryJobStore(self.roads.link()))

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def scenario() -> Any:
            return await work()

        return self.loop.run_until_complete(self.loop.create_task(scenario(), context=self.process.context()))

    def pass_time(self, delay_s: float) -> None:
        self.loop.run_until_complete(self.loop.create_task(asyncio.sleep(delay_s), context=Context()))


@pytest.fixture
def ground() -> Iterator[Ground]:
    ground = Ground()
    yield ground
    ground.loop.close()


def test_an_operation_takes_a_while_each_way(ground: Ground) -> None:
    job = new_job()
    (stored,) = ground.run(lambda: ground.jobs.enqueue([job]))
    assert stored.job_id == job.job_id
    assert 0.001 <= ground.loop.time() <= 0.008


def test_statement_lost_on_its_way_is_not_executed(ground: Ground) -> None:
    ground.roads.manner.cut_before = 1.0
    with pytest.raises(DependencyUnavailableError):
        ground.run(lambda: ground.jobs.enqueue([new_job()]))
    ground.pass_time(10.0)
    assert ground.database.jobs == {}


def test_statement_whose_result_is_lost_is_executed(ground: Ground) -> None:
    ground.roads.manner.cut_after = 1.0
    with pytest.raises(DependencyUnavailableError):
        ground.run(lambda: ground.jobs.enqueue([new_job()]))
    assert len(ground.database.jobs) == 1


def test_the_store_learns_that_its_answer_was_lost(ground: Ground) -> None:
    """A claim whose answer was lost gives its jobs back with the next one, as the real store does."""
    session_id, claim_filter = uuid7_from(1, 1), ClaimFilter()
    identity = ground.process.identity()
    ground.run(lambda: MemorySessionStore(ground.database.link()).open(session_id, identity, 30.0, "1"))
    ground.run(lambda: ground.jobs.enqueue([new_job()]))
    ground.roads.manner.cut_after = 1.0
    with pytest.raises(DependencyUnavailableError):
        ground.run(lambda: ground.jobs.claim(claim_filter, 1, session_id))
    ground.roads.manner.heal()
    (again,) = ground.run(lambda: ground.jobs.claim(claim_filter, 1, session_id))
    assert again.attempt == 1


def test_caller_that_gave_up_loses_the_result(ground: Ground) -> None:
    session_id = uuid7_from(1, 1)
    identity = ground.process.identity()
    ground.run(lambda: MemorySessionStore(ground.database.link()).open(session_id, identity, 30.0, "1"))
    ground.run(lambda: ground.jobs.enqueue([new_job()]))

    async def give_up() -> None:
        claim = asyncio.ensure_future(ground.jobs.claim(ClaimFilter(), 1, session_id))
        await asyncio.sleep(0.0001)
        claim.cancel()
        await asyncio.wait((claim,))

    ground.run(give_up)
    ground.pass_time(1.0)
    assert [row.attempt for row in ground.database.jobs.values()] == [1]  # it was done all the same
    (again,) = ground.run(lambda: ground.jobs.claim(ClaimFilter(), 1, session_id))
    assert again.attempt == 1


def test_away_is_for_one_or_for_all_and_ends(ground: Ground) -> None:
    road_manner = ground.roads.manner
    road_manner.away("p2", 5.0)
    assert not road_manner.is_away("p1")
    assert road_manner.is_away("p2")
    road_manner.away(None, 2.0)
    assert road_manner.is_away("p1")
    with pytest.raises(DependencyUnavailableError):
        ground.run(lambda: ground.jobs.enqueue([new_job()]))
    ground.pass_time(3.0)
    assert not road_manner.is_away("p1")
    road_manner.heal()
    assert not road_manner.is_away("p2")


def test_process_cut_off_when_the_result_arrives_loses_it(ground: Ground) -> None:
    ground.roads.manner.latency_s = (0.1, 0.1)
    ground.loop.call_later(0.15, ground.roads.manner.away, "p1", 5.0, context=Context())
    with pytest.raises(DependencyUnavailableError):
        ground.run(lambda: ground.jobs.enqueue([new_job()]))
    assert len(ground.database.jobs) == 1
    assert +ground.roads.strikes == {"database_away": 1, "database_away one": 1}


def test_abandoned_statement_is_executed_and_its_result_released(ground: Ground) -> None:
    session_id = uuid7_from(1, 1)
    identity = ground.process.identity()
    ground.run(lambda: MemorySessionStore(ground.database.link()).open(session_id, identity, 90.0, "1"))
    ground.run(lambda: ground.jobs.enqueue([new_job()]))
    ground.roads.manner.held = 1.0
    began_s = ground.loop.time()
    with pytest.raises(DependencyUnavailableError):
        ground.run(lambda: ground.jobs.claim(ClaimFilter(), 1, session_id))
    assert ground.loop.time() == pytest.approx(began_s + DEADLINE_S)
    (row,) = ground.database.jobs.values()
    assert row.attempt == 0
    ground.roads.manner.heal()
    ground.pass_time(DEADLINE_S + 1.0)
    assert row.attempt == 1
    assert +ground.roads.strikes == {"late_store": 1}
    (again,) = ground.run(lambda: ground.jobs.claim(ClaimFilter(), 1, session_id))
    assert again.attempt == 1


def test_a_store_that_answers_although_its_answer_was_lost_is_heard(ground: Ground) -> None:
    class Stubborn(MemoryJobStore):
        async def get(self, job_id: object) -> Any:
            try:
                await self.link.answer("get")
            except DependencyUnavailableError:
                return "again"

    road: Any = JobsRoad(ground.roads, ground.process, Stubborn(ground.roads.link()))
    ground.roads.manner.cut_after = 1.0
    assert ground.run(lambda: road.get(None)) == "again"


def test_statement_sent_before_a_process_died_arrives(ground: Ground) -> None:
    process = ground.process
    ground.loop.create_task(ground.jobs.enqueue([new_job()]), context=process.context())
    ground.loop.run_until_complete(ground.loop.create_task(asyncio.sleep(0.0001), context=Context()))
    process.remains = ground.loop.remains_of(process)
    process.die()
    ground.pass_time(1.0)
    assert len(ground.database.jobs) == 1
    for task in process.remains:
        assert not task.done()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()  # type: ignore[union-attr]


def test_the_database_knows_for_whom_it_works(ground: Ground) -> None:
    results = []
    database = ground.database

    class RecordingJobStore(MemoryJobStore):
        async def get(self, job_id: object) -> None:  # type: ignore[override]
            results.append(ground.roads.whose())

    road: Any = JobsRoad(ground.roads, ground.process, RecordingJobStore(database.link()))
    ground.run(lambda: road.get(None))
    assert results == ["p1"]
    assert ground.roads.whose() == ""


def test_news_of_work_is_told_to_the_living(ground: Ground) -> None:
    found_names: list[str] = []
    ground.run(lambda: ground.jobs.listen(found_names.append))
    database = ground.database
    database.notify("default")
    ground.pass_time(1.0)
    assert found_names == ["default"]
    ground.roads.manner.away("p1", 10.0)
    database.notify("default")
    ground.pass_time(11.0)
    assert found_names == ["default"]
    ground.process.die()
    assert database.listeners == []
