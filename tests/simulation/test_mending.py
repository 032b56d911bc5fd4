"""What is left at the end is found: in tables made so, and where a fleet is at rest and does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest

from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import ConnectionKey, EndpointKey, Sealed
from fairlead.policy.jobs.states import JobState
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import MemoryDatabase
from fairlead.testing._memory.rows import JobRow
from fairlead.testing._memory.token_rows import CredentialRow, EndpointRow, RotationRow
from tests.simulation import endings
from tests.simulation.loop import SimLoop
from tests.simulation.machine import WorldClock
from tests.simulation.program import Program
from tests.simulation.run import ORDERED_S, Options, run_seed
from tests.simulation.stores import WORK, Parts

CALM, WATCHED = 11, 112
"""Seeds without faults; the second is watched until all grants are refreshed."""
JOB, CONNECTION = UUID(int=1), UUID(int=2)


@pytest.fixture
def database() -> Iterator[MemoryDatabase]:
    loop = SimLoop(Random(1))
    yield MemoryDatabase(WorldClock(loop), CountedIds(start=1))
    loop.close()


def add_job(
    database: MemoryDatabase, kind: str, state: JobState = JobState.AVAILABLE, *, late_s: float = 0.0
) -> JobRow:
    provider = "strict" if kind == "sim.call" else None
    args = {WORK: 7} if kind.startswith("sim.") else {}
    run_at = database.now - timedelta(seconds=late_s)
    row = JobRow(
        JOB,
        "default",
        kind,
        "a",
        provider,
        "",
        2,
        run_at,
        run_at,
        None,
        None,
        None,
        None,
        {**args},
        (),
        state,
    )
    database.jobs[JOB] = row
    return row


def add_grant(database: MemoryDatabase, state: str) -> None:
    key = ConnectionKey("a", "strict")
    row = CredentialRow(CONNECTION, key, Sealed(JOB, b""), True, database.now)
    row.become(state, None, database.now)  # type: ignore[arg-type]
    database.tokens.credentials[CONNECTION] = row


@pytest.mark.parametrize("state", [JobState.AVAILABLE, JobState.RUNNING])
@pytest.mark.parametrize("kind", ["sim.work", "sim.flood", "sim.poison", "sim.call"])
def test_work_that_is_not_done_is_left(database: MemoryDatabase, kind: str, state: JobState) -> None:
    add_grant(database, "active")
    add_job(database, kind, state)
    assert [*endings.work_left(database)]


def test_only_a_call_may_wait_for_the_customer(database: MemoryDatabase) -> None:
    """Work that needs no token has no excuse where a grant is gone."""
    add_grant(database, "needs_reauth")
    add_job(database, "sim.work")
    assert [*endings.work_left(database)]
    add_job(database, "sim.call")
    assert not [*endings.work_left(database)]
    add_job(database, "sim.call", JobState.RUNNING)
    assert [*endings.work_left(database)]


@pytest.mark.parametrize("kind", ["token.scan", "sim.work"])
def test_a_job_that_is_late_or_runs_is_due(database: MemoryDatabase, kind: str) -> None:
    add_job(database, kind, late_s=-30.0)
    assert not [*endings.jobs_due(database)]
    add_job(database, kind, late_s=endings.OVERDUE_S + 1)
    assert [*endings.jobs_due(database)]
    add_job(database, kind, JobState.RUNNING)
    assert [*endings.jobs_due(database)]
    add_job(database, kind, JobState.COMPLETED, late_s=60.0)
    assert not [*endings.jobs_due(database)]


def test_refresh_requested_again_must_be_completed(database: MemoryDatabase) -> None:
    add_job(database, "sim.call", JobState.DISCARDED)
    assert [*endings.asked_left(database, [JOB])]
    add_job(database, "sim.call", JobState.COMPLETED)
    assert not [*endings.asked_left(database, [JOB])]


@pytest.mark.parametrize("state", ["unknown", "needs_reauth", "revoked"])
def test_a_grant_that_is_not_good_is_told(database: MemoryDatabase, state: str) -> None:
    add_grant(database, state)
    assert [*endings.grants_gone(database)]
    add_grant(database, "active")
    assert not [*endings.grants_gone(database)]


def test_a_refresh_and_a_breaker_that_nobody_ended_are_told(database: MemoryDatabase) -> None:
    add_grant(database, "active")
    now, tables = database.now, database.tokens
    endpoint = tables.endpoints[EndpointKey("strict", "app")] = EndpointRow(now, now)
    assert not [*endings.refreshes_left(database), *endings.endpoints_shut(database)]
    tables.rotations[CONNECTION] = RotationRow(CONNECTION, JOB, 1, 1, JOB, now, now, "sent")
    endpoint.state = "open"
    assert [*endings.refreshes_left(database)]
    assert [*endings.endpoints_shut(database)]


# ---- whole seeds: at rest, and nothing more ----------------------------------------------------


def claims_no_more(program: Program) -> None:
    """Once what was ordered is done no job is claimed."""
    claim, world = program.jobs.claim, program.world

    async def claimed(*args: object) -> object:
        done = world.now() > ORDERED_S + 15.0 and not [*endings.work_left(world.database)]
        return [] if done or not world.bad else await claim(*args)

    program.jobs.claim = claimed


def refreshes_no_more(program: Program) -> None:
    """Once all is mended nobody looks which grants are due."""
    handlers, world = program.executor._handlers, program.world
    scan = handlers["token.scan"]

    async def look(context: JobContext) -> object:
        return await scan.run(context) if world.bad else None

    program.executor._handlers = {**handlers, "token.scan": replace(scan, run=look)}


def gives_no_slot_back(program: Program) -> None:
    """The end of a call never leaves its process."""
    program.redis.release_soon = lambda release, callback: None  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "alter", "why"),
    [
        (CALM, claims_no_more, "ordered after the mending"),
        (CALM, gives_no_slot_back, "to the end of its lease"),
        (WATCHED, refreshes_no_more, "was not refreshed"),
    ],
)
def test_a_fleet_that_rests_and_does_nothing_breaks_the_seed(
    seed: int, alter: Callable[[Program], None], why: str
) -> None:
    broken = run_seed(Options(seed, parts=Parts(alter=alter))).broken
    assert broken is not None
    assert why in broken.why
