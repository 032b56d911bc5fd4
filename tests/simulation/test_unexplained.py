"""What no fault explains is found, whoever catches it; what a fault explains is let pass."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from fairlead.errors import DependencyUnavailableError
from fairlead.events import DeadLetterFailed, Event, JobFinished, ServiceFailed, TokenRefreshFailed
from fairlead.testing.ledger import Ledger, LedgerEntry
from tests.simulation.program import Program
from tests.simulation.run import Options, run_seed
from tests.simulation.stores import Parts
from tests.simulation.swarm import FAULTS
from tests.simulation.unexplained import Calm, LeftToItsLease, bug_in, sent_twice
from tests.simulation.watch import (
    Accepted,
    CalledOff,
    DeclaredLost,
    Entry,
    Freed,
    Observed,
    Ran,
    SlotExpired,
    Struck,
    TimedOut,
)

JOB, OTHER = UUID(int=1), UUID(int=2)
UNWRITTEN = "3 results could not be written before the stop; their jobs run again"


def finished(kind: str, code: str) -> JobFinished:
    return JobFinished(JOB, kind, "a", None, "rescheduled", 1, 0.1, "transient_network", code, "why")


@pytest.mark.parametrize(
    ("event", "causes"),
    [
        (finished("sim.call", "http_503"), {"ill"}),
        (finished("sim.work", "job_timeout"), {"freeze"}),
        (finished("sim.poison", "value_error"), {"poison"}),
        (finished("sim.work", "poison"), {"freeze"}),
        (finished("token.refresh", "dependency_unavailable"), {"database_away"}),
        (TokenRefreshFailed("a", "p", "", JOB, "rate_limited", None, "why"), {"issuer_busy"}),
        (ServiceFailed("worker", UNWRITTEN), {"cut"}),
        (DeadLetterFailed("1", "a", None, "the store is away"), {"cut"}),
    ],
    ids=lambda param: getattr(param, "name", ""),
)
def test_a_failure_has_a_fault_behind_it(event: Event, causes: set[str]) -> None:
    assert bug_in(event, causes) is None
    assert bug_in(event, set()) is not None
    assert bug_in(event, {"noisy"}) is not None


@pytest.mark.parametrize(
    "event",
    [
        finished("sim.call", "unclassified"),
        finished("sim.work", "http_503"),
        finished("token.scan", "unclassified"),
        ServiceFailed("rescuer", "TypeError: a bug"),
        TokenRefreshFailed("a", "p", "", JOB, "invalid_client", None, "why"),
    ],
    ids=lambda event: event.name,
)
def test_event_that_no_fault_explains_is_a_bug_with_all_of_them(event: Event) -> None:
    assert bug_in(event, set(FAULTS)) is not None


def test_successful_event_is_no_bug() -> None:
    well = replace(finished("sim.work", ""), outcome="completed", category=None, code=None, reason=None)
    assert bug_in(well, set()) is None


@pytest.mark.parametrize(
    "observed",
    [
        Struck("kill", 3.0),
        DeclaredLost(JOB, proven=False),
        Freed(JOB, 7, crash=True),
        Accepted(JOB, 7, "discarded", 1),
        Accepted(JOB, 7, "rescheduled", 1),
        Accepted(JOB, 7, "cancelled", 1),
    ],
    ids=lambda param: type(param).__name__,
)
def test_in_a_calm_seed_nothing_happens(observed: Observed) -> None:
    calm = Calm()
    for fine in (
        Ran(JOB, 7, "a", "sim.work", 1),
        Accepted(JOB, 7, "handed_back", 1),
        Accepted(JOB, 8, "completed", 1),
        CalledOff(OTHER),
        Accepted(OTHER, 9, "cancelled", 1),
    ):
        assert calm.see(Entry(1.0, "p1", fine)) is None
    assert calm.see(Entry(1.0, "p1", observed)) is not None


def test_in_a_calm_seed_no_generation_is_sent_twice() -> None:
    def arrived(request: int, generation: int) -> LedgerEntry:
        return LedgerEntry(
            1,
            float(request),
            request,
            "arrived",
            {"req": request, "provider": "stable", "connection": "a", "generation": generation},
        )

    assert sent_twice(Ledger((arrived(1, 1), arrived(2, 2))), 9.0) is None
    broken = sent_twice(Ledger((arrived(1, 1), arrived(2, 1))), 9.0)
    assert broken is not None
    assert broken.invariant == "calm"


def test_a_slot_that_is_left_to_its_lease_is_found() -> None:
    expired = Entry(170.0, "p1", SlotExpired("account", 100.0, 1))
    assert LeftToItsLease().see(expired) is not None
    for process, fault, at, excused in [
        ("p1", "kill", 90.0, True),
        ("p1", "kill", 20.0, False),
        ("p2", "freeze", 90.0, False),
        ("", "redis_loss", 90.0, True),
        ("p1", "restart", 90.0, False),
    ]:
        slots = LeftToItsLease()
        slots.see(Entry(at, process, Struck(fault, at)))
        assert (slots.see(expired) is None) == excused, (process, fault, at)


@pytest.mark.parametrize(
    ("at", "timed_out", "excused"),
    [
        (75.0, TimedOut(1, 5.0), True),
        (75.0, TimedOut(2, 5.0), False),
        (75.0, TimedOut(1, 4.9), False),
        (60.0, TimedOut(1, 5.0), False),
    ],
    ids=["fair", "another call", "hurried", "renewed after its end"],
)
def test_only_a_call_that_timed_out_after_a_fair_trial_keeps_its_slot(
    at: float, timed_out: TimedOut, excused: bool
) -> None:
    slots = LeftToItsLease()
    assert slots.see(Entry(at, "p1", timed_out)) is None
    assert (slots.see(Entry(110.0, "p1", SlotExpired("account", 100.0, 1))) is None) == excused


# ---- in whole seeds ----------------------------------------------------------------------------


def cannot_look(program: Program) -> None:
    """A rescuer that meets a bug at each pass."""

    async def fail(*args: object) -> None:
        raise TypeError("a bug")

    program.sessions.rescue = fail


def cannot_work(program: Program) -> None:
    """A handler of plain work that raises."""

    async def fail(context: object) -> None:
        raise KeyError("a bug")

    handlers = program.executor._handlers
    program.executor._handlers = {**handlers, "sim.work": replace(handlers["sim.work"], run=fail)}


def ends_in_an_outage(program: Program) -> None:
    """A worker that the first outage ends."""

    async def fail() -> None:
        await program.clock.sleep(30.0)
        raise DependencyUnavailableError("the database is away")

    program.worker.run = fail  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alter", "invariant"),
    [(cannot_look, "bug"), (cannot_work, "bug"), (ends_in_an_outage, "crash")],
)
def test_altered_run_breaks_the_seed(alter: object, invariant: str) -> None:
    outcome = run_seed(Options(1, parts=Parts(alter=alter)))  # type: ignore[arg-type]
    assert outcome.broken is not None
    assert outcome.broken.invariant == invariant
