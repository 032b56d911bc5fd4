"""Each invariant finds a breach that was planted, and lets pass what looks like one and is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from tests.simulation.invariants import watching
from tests.simulation.watch import (
    NOBODY,
    Accepted,
    Beat,
    Broken,
    CalledOff,
    Claimed,
    Closed,
    DeclaredLost,
    Entry,
    Freed,
    Observed,
    Opened,
    Over,
    Ran,
    Read,
    Returned,
    Struck,
    first_breach,
)

JOB, SESSION, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
Step = tuple[float, str, Observed]


def violation_of(steps: Sequence[Step]) -> str | None:
    """Which invariant is broken first by what was seen when, and of whom."""
    broken = first_breach([Entry(*step) for step in steps], watching())
    return None if broken is None else broken.invariant


def claimed(at: float, lease_id: int, tenant: str = "a", waited_s: float = 0.0, job: UUID = JOB) -> Step:
    return at, "p1", Claimed(job, lease_id, SESSION, tenant, "sim.work", waited_s)


def accepted(at: float, lease_id: int, outcome: str = "completed", job: UUID = JOB) -> Step:
    return at, "p1", Accepted(job, lease_id, outcome, work=1)


def put_off(number: int, category: str, work: int | None = 1) -> list[Step]:
    accepted = Accepted(JOB, number, "rescheduled", work, category)
    return [claimed(number, number), (number + 0.5, "p1", accepted)]


def returned(at: float, lease_id: int, job: UUID = JOB) -> Step:
    return at, "p1", Returned(job, lease_id)


def handed_back(at: float, lease_id: int) -> Step:
    return accepted(at, lease_id, "handed_back")


def freed(at: float, lease_id: int, *, crash: bool = True) -> Step:
    return at, "p1", Freed(JOB, lease_id, crash)


def ran(at: float, lease_id: int, kind: str = "sim.work") -> Step:
    return at, "p1", Ran(JOB, lease_id, "a", kind, work=1)


def struck(at: float, fault: str, until: float, process: str = "p1") -> Step:
    return at, process, Struck(fault, until)


# ---- jobs --------------------------------------------------------------------------------------


def test_i2_an_outcome_under_an_older_lease_is_found() -> None:
    taken_over = [claimed(1, 7), freed(2, 7), claimed(3, 8)]
    assert violation_of([*taken_over, returned(4, 7), accepted(4, 7)]) == "I2"
    assert violation_of([*taken_over, returned(4, 8), accepted(4, 8)]) is None


def test_i2_an_outcome_after_the_lease_was_ended_is_found() -> None:
    assert violation_of([claimed(1, 7), freed(2, 7), returned(3, 7), accepted(3, 7)]) == "I2"
    assert violation_of([claimed(1, 7), accepted(2, 7, "handed_back"), accepted(3, 7, "rescheduled")]) == "I2"


def test_i2_what_was_called_off_ends_under_its_lease_and_is_not_given_away_again() -> None:
    called_off: Step = (2.0, "c1", CalledOff(JOB))
    assert violation_of([claimed(1, 7), called_off]) is None
    assert violation_of([claimed(1, 7), called_off, returned(3, 7), accepted(3, 7)]) is None
    assert violation_of([claimed(1, 7), called_off, accepted(3, 7, "handed_back"), claimed(4, 8)]) == "I2"
    assert violation_of([called_off, claimed(3, 8)]) == "I2"


def test_i2_a_lease_that_is_run_twice_is_found() -> None:
    assert violation_of([claimed(1, 7), ran(2, 7), ran(3, 7)]) == "I2"
    assert violation_of([claimed(1, 7), ran(2, 7), freed(3, 7), claimed(4, 8), ran(5, 8)]) is None


def test_i3_work_that_is_completed_twice_is_found() -> None:
    other = UUID(int=9)
    once = [claimed(1, 7), returned(2, 7), accepted(2, 7), claimed(3, 8, job=other), returned(4, 8, other)]
    assert violation_of([*once, accepted(4, 8, job=other)]) == "I3"
    assert violation_of([*once, accepted(4, 8, "cancelled", job=other)]) is None


def test_i3_work_that_is_completed_though_its_handler_never_returned_is_found() -> None:
    cut_off = [claimed(1, 7), ran(2, 7), freed(3, 7), claimed(4, 8), ran(5, 8)]
    assert violation_of([*cut_off, accepted(6, 8)]) == "I3"
    assert violation_of([*cut_off, returned(6, 7), accepted(6, 8)]) == "I3", (
        "what returned was another run of it"
    )
    assert violation_of([*cut_off, returned(6, 8), accepted(6, 8)]) is None


def test_i7_a_job_that_takes_its_process_along_once_too_often_is_found() -> None:
    crashes = [step for number in range(3) for step in (claimed(number, number), freed(number + 0.5, number))]
    assert violation_of(crashes) is None
    assert violation_of([*crashes, claimed(9, 9), freed(10, 9)]) == "I7"
    assert (
        violation_of([*crashes, claimed(9, 9), freed(10, 9, crash=False), claimed(11, 10), freed(12, 10)])
        is None
    )


RUNS_OF = [("sim.work", 6), ("sim.poison", 4), ("sim.slow", 6), ("sim.burst", 6), ("sim.call", 19)]
"""As the specification's table has them: 1 and 5 for the network, 10 for rates and 3 for servers besides."""


@pytest.mark.parametrize(("kind", "most"), RUNS_OF)
def test_i7_an_attempt_beyond_the_last_is_found(kind: str, most: int) -> None:
    last = [ran(number, number, kind) for number in range(most)]
    assert violation_of(last) is None
    assert violation_of([*last, ran(90, 90, kind)]) == "I7"


@pytest.mark.parametrize("end", [freed, handed_back])
def test_i7_what_was_handed_back_is_no_attempt(end: Callable[[float, int], Step]) -> None:
    last = [ran(number, number) for number in range(6)]
    assert violation_of([claimed(89, 90), *last, end(89.5, 90), ran(90, 91)]) == "I7"  # it had not run
    assert violation_of([claimed(0, 0), *last, end(89, 0), ran(90, 90)]) is None


def test_i7_nor_is_what_began_after_it_was_given_back() -> None:
    last = [ran(number, number) for number in range(6)]
    assert violation_of([claimed(89, 90), freed(89.5, 90), *last, ran(90, 90)]) is None
    assert violation_of([claimed(89, 90), freed(89.5, 90), *last, ran(90, 90), ran(91, 91)]) == "I7"


@pytest.mark.parametrize(
    ("category", "most"),
    [
        ("transient_network", 5),
        ("transient_rate_limit", 10),
        ("transient_server", 3),
        ("handler_error", 3),
        ("permanent_auth", 0),
    ],
)
def test_i7_a_failure_beyond_the_limit_of_its_category_is_found(category: str, most: int) -> None:
    others = [step for number in (90, 91, 92) for step in put_off(number, "transient_server")]
    others = [] if category == "transient_server" else others
    all_of_them = [step for number in range(most) for step in put_off(number, category)]
    assert violation_of([*others, *all_of_them]) is None
    assert violation_of([*others, *all_of_them, *put_off(80, category)]) == "I7"
    schedule_runs = [step for number in range(most + 1) for step in put_off(number, category, work=None)]
    assert violation_of(schedule_runs) is None, "what the fleet does for itself has rules of its own"


def test_i8_a_tenant_who_waits_while_others_are_served_is_found() -> None:
    noise = [claimed(number / 100, number, "noisy", job=UUID(int=number)) for number in range(10, 99)]
    assert violation_of([*noise, claimed(1.0, 100, "quiet", waited_s=0.9)]) == "I8"
    assert violation_of([*noise, claimed(1.0, 100, "quiet", waited_s=0.1)]) is None
    given_back = [claimed(0.0, 1, "quiet"), freed(0.05, 1)]
    assert violation_of([*given_back, *noise, claimed(1.0, 100, "quiet", waited_s=0.9)]) is None


def test_i9_data_of_another_tenant_is_found() -> None:
    assert violation_of([(1.0, "p1", Read("a", "a"))]) is None
    assert violation_of([(1.0, "p1", Read("a", "b"))]) == "I9"


# ---- processes ---------------------------------------------------------------------------------


def opened(at: float = 0.0) -> list[Step]:
    return [(at, "p1", Opened(SESSION, 15.0)), (at + 5.0, "p1", Beat(SESSION))]


def lost(at: float, *, proven: bool = False) -> Step:
    return at, "p2", DeclaredLost(SESSION, proven)


def test_i11_a_process_that_nothing_happened_to_is_not_dead() -> None:
    assert violation_of([*opened(), lost(21.0)]) == "I11"
    assert violation_of([*opened(), struck(6.0, "kill", 9.0), lost(21.0)]) is None
    assert violation_of([*opened(), struck(6.0, "kill", 9.0, "p3"), lost(21.0)]) == "I11"


@pytest.mark.parametrize(
    ("until", "owner", "at", "excused"),
    [
        (30.0, NOBODY, 21.0, False),  # nobody can tell while it lasts
        (30.0, NOBODY, 31.0, False),
        (30.0, NOBODY, 45.5, True),
        (13.0, NOBODY, 21.0, True),  # shorter than half a lease
        (30.0, "p1", 21.0, True),  # the others would have heard it
    ],
)
def test_i11_an_outage_for_all_is_nobodys_silence(until: float, owner: str, at: float, excused: bool) -> None:
    away = struck(6.0, "away", until, owner)
    assert (violation_of([*opened(), away, lost(at)]) is None) == excused


def test_i11_an_outage_that_ends_early_counts_to_its_end() -> None:
    away: list[Step] = [struck(6.0, "away", 60.0, NOBODY), (20.0, NOBODY, Over("away"))]
    assert violation_of([*opened(), *away, lost(34.5)]) == "I11"
    assert violation_of([*opened(), *away, lost(35.5)]) is None


def test_i11_a_session_that_its_caller_gave_up_is_nobodys() -> None:
    late = [(6.0, "p1", Opened(OTHER, 15.0))]
    beats = [(at, "p1", Beat(SESSION)) for at in (10.0, 15.0, 20.0)]
    lost_steps = [(21.5, "p2", DeclaredLost(OTHER, False))]
    assert violation_of([*opened(), *late, *beats, *lost_steps]) is None
    assert violation_of([*opened(), *late, *lost_steps]) == "I11", "nobody knows of a life in another"
    assert (
        violation_of([*opened(), *late, (7.0, "p1", Beat(OTHER)), *beats, (22.5, *lost_steps[0][1:])])
        == "I11"
    )
    assert violation_of([*opened(), *late, *beats, (20.5, *lost_steps[0][1:])]) == "I11", "within its lease"


def test_i11_a_lease_stands_to_its_end_unless_there_is_a_proof() -> None:
    frozen = struck(6.0, "freeze", 40.0)
    assert violation_of([*opened(), frozen, lost(15.0)]) == "I11"
    assert violation_of([*opened(), struck(6.0, "kill", 9.0), lost(7.0, proven=True)]) is None


def test_i11_a_lease_is_not_taken_from_who_lives() -> None:
    freed_step: Step = (6.0, "p2", Freed(JOB, 7, crash=False))
    handed_back: Step = (6.0, "p1", Freed(JOB, 7, crash=False))
    assert violation_of([*opened(), claimed(1, 7), freed_step]) == "I11"
    assert violation_of([*opened(), claimed(1, 7), handed_back]) is None
    assert violation_of([*opened(), claimed(1, 7), (5.5, "p1", Closed(SESSION)), freed_step]) is None


@pytest.mark.parametrize("number", [0, 1])
def test_a_breach_says_when(number: int) -> None:
    broken = first_breach([Entry(3.0, "p1", Read("a", "ab"[number]))], watching())
    assert (broken is None) == (number == 0)
    assert broken is None or str(broken) == "I9 at 3.000 s: data of 'b' was read for 'a'"
    assert broken is None or broken == Broken("I9", 3.0, broken.why)
