"""A customer who asks again gets one job for his key; he calls work off, and has dead work tried again."""

from __future__ import annotations

from collections import Counter
from random import Random
from uuid import UUID

import pytest

from fairlead.engine.ports import NewJob
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import MemoryDatabase
from fairlead.testing._memory.enqueue import store
from tests.simulation.customer import Whim
from tests.simulation.endings import stored_twice
from tests.simulation.loop import SimLoop
from tests.simulation.machine import WorldClock
from tests.simulation.providers import RULES
from tests.simulation.run import Options, run_seed
from tests.simulation.stores import WORK
from tests.simulation.watch import Watch
from tests.simulation.workload import TENANTS, vendors_of


def stored(*jobs: NewJob) -> str | None:
    """Which invariant is broken by a table of *jobs*."""
    loop = SimLoop(Random(1))
    database = MemoryDatabase(WorldClock(loop), CountedIds())
    for job in jobs:
        store(database, job)
    broken = stored_twice(Watch(loop.time, str), database)
    loop.close()
    return None if broken is None else broken.invariant


def job(number: int, key: str | None, replay_of: UUID | None = None) -> NewJob:
    return NewJob(UUID(int=number), "sim.work", "a", args={WORK: 1}, unique_key=key, replay_of=replay_of)


def test_i3_a_key_that_two_jobs_stand_for_is_found() -> None:
    assert stored(job(1, "work-1"), job(2, "work-1")) == "I3"
    assert stored(job(1, "work-1"), job(2, "work-2"), job(3, None), job(4, None)) is None
    assert stored(job(1, "work-1"), job(2, "work-1", replay_of=UUID(int=9))) is None


def test_each_vendor_has_one_tenant_and_not_always_the_same() -> None:
    drawn = [vendors_of(Random(number)) for number in range(40)]
    for vendors in drawn:
        assert (*vendors,) == TENANTS
        assert sorted(vendors.values()) == sorted(RULES)
    assert {vendors["noisy"] for vendors in drawn} == set(RULES)


def test_customers_have_whims() -> None:
    draw = Random(1)
    whims = [Whim.of(draw) for _ in range(400)]
    had = Counter(
        {
            "keyed": sum(whim.keyed for whim in whims),
            "later": sum(whim.delay_s > 0 for whim in whims),
            "regretted": sum(whim.regrets_s is not None for whim in whims),
        }
    )
    assert 150 < had["keyed"] < 250
    assert 30 < had["later"] < 90
    assert 15 < had["regretted"] < 55


@pytest.mark.slow
def test_seeds_have_what_customers_do_besides_ordering() -> None:
    counts: Counter[str] = Counter()
    for seed in (8, 15, 17):  # any few of which some lose an answer
        outcome = run_seed(Options(seed))
        assert outcome.broken is None
        counts.update(outcome.seen)
    assert counts["calledoff"]
    assert counts["askedagain"]
    assert counts["redriven"]
