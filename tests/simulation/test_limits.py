"""Each invariant of calls finds a breach that was planted, and lets pass what looks like one and is none."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.invariants import watching
from tests.simulation.limits import AFTERWARDS_S, LEASE_S
from tests.simulation.providers import LITTLE
from tests.simulation.watch import (
    NOBODY,
    Arrived,
    BreakerClosed,
    BreakerOpened,
    Entry,
    Kept,
    Left,
    Observed,
    Over,
    SimulatedAdmission,
    Struck,
    first_breach,
)
from tests.simulation.wire import HowItEnded

ACCOUNT = "strict/quiet"
SLOTS = LITTLE.slots or 0
BURST = int(LITTLE.burst)
Step = tuple[float, str, Observed]


def violation_of(steps: Sequence[Step]) -> str | None:
    """Which invariant is broken first by what was seen when, and of whom."""
    broken = first_breach([Entry(*step) for step in steps], watching())
    return None if broken is None else broken.invariant


def struck(at: float, fault: str, until: float, process: str = "p1") -> Step:
    return at, process, Struck(fault, until)


def over(at: float, fault: str, process: str = "p1") -> Step:
    return at, process, Over(fault)


def arrived(
    at: float,
    number: int,
    *,
    here: Sequence[int] = (),
    call: str = "",
    status: int = 200,
    let_in: float | None = None,
    degraded: bool = False,
    process: str = "p1",
) -> Step:
    """A call with a slot of its own number, let in (default: as it arrives) past the breaker "host"."""
    admission = SimulatedAdmission(at if let_in is None else let_in, "host", number, 60.0, degraded)
    arrival = Arrived(number, ACCOUNT, call or f"call-{number}", status, (*here, number), admission)
    return at, process, arrival


def together(
    at: float, first: int, count: int, process: str = "p1", let_in: float | None = None
) -> list[Step]:
    """*count* calls at once, numbered from *first*, each of which finds those before it in flight."""
    numbers = range(first, first + count)
    return [
        arrived(at, number, here=range(first, number), process=process, let_in=let_in) for number in numbers
    ]


def left_step(at: float, number: int, how: HowItEnded = "answered") -> Step:
    return at, "p1", Left(number, ACCOUNT, how)


def gone_steps(at: float, first: int, count: int) -> list[Step]:
    return [left_step(at, number) for number in range(first, first + count)]


# ---- calls at once -----------------------------------------------------------------------------


def test_i4_more_calls_than_slots_are_found() -> None:
    assert violation_of(together(1.0, 1, SLOTS)) is None
    assert violation_of(together(1.0, 1, SLOTS + 1)) == "I4"
    assert (
        violation_of([*together(1.0, 1, SLOTS), *gone_steps(1.2, 1, SLOTS), *together(1.2, 9, SLOTS)]) is None
    )


def full_beside_a_frozen_one(*frozen: Step, at: float, kept_steps: Sequence[Step] = ()) -> str | None:
    """One call of p2, which was let in at 0; at *at* there are others in all the slots of its account."""
    others = range(2, SLOTS + 2)
    last = [arrived(at, number, here=(1, *range(2, number))) for number in others]
    return violation_of([arrived(0, 1, process="p2"), *kept_steps, *frozen, *last])


def test_i4_who_stands_still_beyond_its_lease_may_be_there_beside_another() -> None:
    frozen = struck(5, "freeze", 60, "p2")
    assert full_beside_a_frozen_one(frozen, at=LEASE_S + 1) is None
    assert full_beside_a_frozen_one(frozen, over(LEASE_S + 1, "freeze", "p2"), at=LEASE_S + 1.05) is None


def test_i4_a_freeze_within_the_lease_excuses_nothing() -> None:
    frozen = struck(5, "freeze", 60, "p2")
    assert full_beside_a_frozen_one(frozen, at=LEASE_S - 1) == "I4"
    assert full_beside_a_frozen_one(frozen, over(20, "freeze", "p2"), at=21) == "I4"
    assert full_beside_a_frozen_one(frozen, over(20, "freeze", "p2"), at=LEASE_S + 1) == "I4"
    kept_step: Step = (4.0, "p2", Kept(1))
    assert full_beside_a_frozen_one(frozen, at=LEASE_S + 3, kept_steps=[kept_step]) == "I4"
    assert full_beside_a_frozen_one(frozen, at=LEASE_S + 5, kept_steps=[kept_step]) is None


def test_i4_who_goes_on_ends_at_once_what_he_may_not_go_on_with() -> None:
    frozen = struck(5, "freeze", 60, "p2")
    assert full_beside_a_frozen_one(frozen, over(40, "freeze", "p2"), at=41) == "I4"
    assert full_beside_a_frozen_one(frozen, at=60.2) == "I4"


def test_i4_one_share_more_while_redis_is_away() -> None:
    away = struck(0.0, "redis_away", 10.0, NOBODY)
    more = SLOTS + SLOTS // 2
    assert violation_of([away, *together(9.0, 1, more)]) is None
    assert violation_of([away, *together(9.0, 1, more + 1)]) == "I4"
    assert violation_of([away, over(2.0, "redis", NOBODY), *together(3.0 + LEASE_S, 1, more)]) == "I4"


def test_i4_who_stood_still_and_has_not_looked_yet_keeps_to_a_share_of_its_own() -> None:
    frozen, others = struck(5.0, "freeze", 60.0, "p2"), together(60.2, 2, SLOTS)
    own_step = arrived(60.1, 1, degraded=True, process="p2")
    last = arrived(60.3, 99, here=range(1, SLOTS + 1))
    assert violation_of([frozen, own_step, *others[:-1], last]) is None
    assert violation_of([own_step, *others[:-1], last]) == "I4"
    assert violation_of([frozen, arrived(60.1, 1, process="p2"), *others[:-1], last]) == "I4"
    later = arrived(60.1 + AFTERWARDS_S, 1, degraded=True, process="p2")
    others = together(60.2 + AFTERWARDS_S, 2, SLOTS)
    assert violation_of([frozen, later, *others[:-1], arrived(67.0, 99, here=range(1, SLOTS + 1))]) == "I4"


# ---- calls in a window -------------------------------------------------------------------------


def test_i5_more_calls_than_the_rate_allows_are_found() -> None:
    steady = [
        step for n in range(200) for step in (arrived(n / LITTLE.per_s, n), left_step(n / LITTLE.per_s, n))
    ]
    assert violation_of(steady) is None
    assert violation_of(burst_at(0.0, 1, BURST)) is None
    assert violation_of(burst_at(0.0, 1, 2 * BURST)) == "I5"


def burst_at(
    at: float, first: int, count: int, *, let_in: float | None = None, degraded: bool = False
) -> list[Step]:
    """Calls one after the other, at the same moment."""
    numbers = range(first, first + count)
    calls = [(arrived(at, n, let_in=let_in, degraded=degraded), left_step(at, n)) for n in numbers]
    return [step for call in calls for step in call]


def test_i5_what_a_freeze_held_up_counts_when_it_was_let_in() -> None:
    frozen, thawed = struck(10.0, "freeze", 20.0), over(20.0, "freeze")
    held_up = burst_at(20.02, 1, BURST, let_in=9.99)
    assert violation_of([frozen, thawed, *held_up, *burst_at(20.03, 50, BURST)]) is None
    assert violation_of([*burst_at(9.98, 50, BURST), frozen, thawed, *held_up]) == "I5"
    assert violation_of([frozen, thawed, *burst_at(20.02, 1, BURST, let_in=20.0), *held_up]) is None


def test_i5_who_goes_on_after_a_freeze_may_do_no_more_than_others() -> None:
    frozen, thawed = struck(10.0, "freeze", 20.0), over(20.0, "freeze")
    assert violation_of([frozen, thawed, *burst_at(20.02, 1, 2 * BURST, let_in=20.01)]) == "I5"
    share = burst_at(20.02, 50, BURST, let_in=20.01, degraded=True)
    assert violation_of([frozen, thawed, *burst_at(20.02, 1, BURST), *share]) is None
    assert violation_of([frozen, thawed, *burst_at(20.02, 1, 2 * BURST, let_in=20.01, degraded=True)]) == "I5"
    assert violation_of([frozen, thawed, *share, *burst_at(20.03, 1, 2 * BURST)]) == "I5"
    assert (
        violation_of([frozen, thawed, *burst_at(26.0, 1, BURST), *burst_at(26.0, 50, BURST, degraded=True)])
        == "I5"
    )


def test_i5_a_call_that_no_gate_let_in_is_found() -> None:
    arrival = Arrived(1, ACCOUNT, "call", 200, (1,), None)
    assert violation_of([(1.0, "p1", arrival)]) == "I5"


# ---- retries -----------------------------------------------------------------------------------


def calls(began_at: float, first: int, count: int, status: int = 200, name: int = 0) -> list[Step]:
    """Calls each 0.2 s, named from *name*."""
    steps: list[Step] = []
    for number in range(count):
        at = began_at + number * 0.2
        steps += [
            arrived(at, first + number, call=f"call-{name + number}", status=status),
            left_step(at, first + number),
        ]
    return steps


def test_i10_retries_that_become_the_load_are_found() -> None:
    firsts = calls(0, 0, 20, status=503)
    assert violation_of([*firsts, *calls(4, 100, 20)]) == "I10"
    assert violation_of([*firsts, *calls(4, 100, 3)]) is None


def test_i10_a_newer_token_is_no_retry() -> None:
    assert violation_of([*calls(0, 0, 20, status=401), *calls(4, 100, 20)]) is None


# ---- breakers ----------------------------------------------------------------------------------

OPENED: Step = (1.0, "p1", BreakerOpened("host", 5.0))


def test_i12_a_call_through_an_open_breaker_is_found() -> None:
    assert violation_of([OPENED, arrived(3.0, 1)]) == "I12"
    assert violation_of([OPENED, arrived(3.0, 1, let_in=0.9)]) is None
    assert violation_of([OPENED, arrived(3.0, 1, degraded=True)]) is None
    assert violation_of([OPENED, (2.0, "p1", BreakerClosed("host")), arrived(3.0, 1)]) is None
    assert violation_of([OPENED, struck(2.0, "redis_loss", 2.0, NOBODY), arrived(3.0, 1)]) is None
    assert violation_of([OPENED, struck(2.0, "redis_away", 2.5, NOBODY), arrived(3.0, 1)]) == "I12"


def test_i12_a_second_call_that_decides_is_found() -> None:
    first = arrived(6.1, 1)
    assert violation_of([OPENED, first]) is None
    assert violation_of([OPENED, first, arrived(7.0, 2)]) == "I12"
    assert violation_of([OPENED, first, left_step(6.5, 1), arrived(7.0, 2)]) is None
    assert violation_of([OPENED, first, left_step(6.5, 1), arrived(7.0, 2, let_in=6.4)]) == "I12"
    assert (
        violation_of([OPENED, first, left_step(6.5, 1), (6.6, "p1", BreakerClosed("host")), arrived(7.0, 2)])
        is None
    )
    assert violation_of([OPENED, first, left_step(6.5, 1), (6.6, "p1", OPENED[2]), arrived(7.0, 2)]) == "I12"


def test_i5_one_who_is_away_alone_has_its_share_beside_the_others() -> None:
    cut_off = struck(0.0, "redis_away", 60.0, "p2")
    spent = [arrived(0.0, number) for number in range(BURST)]
    others = [arrived(number / LITTLE.per_s, 100 + number) for number in range(1, 150)]
    share = [
        arrived(2.0 * number / LITTLE.per_s, 300 + number, degraded=True, process="p2")
        for number in range(1, 75)
    ]
    all_steps = [
        arrived(number / LITTLE.per_s, 300 + number, degraded=True, process="p2") for number in range(1, 75)
    ]
    both = sorted([*others, *share], key=lambda step: step[0])
    assert violation_of([cut_off, *spent, *both]) is None
    assert violation_of([cut_off, *spent, *sorted([*others, *all_steps], key=lambda step: step[0])]) == "I5"
    assert violation_of([cut_off, *spent, *both, *[arrived(30.0, 500 + n) for n in range(2 * BURST)]]) == "I5"


def test_i4_what_the_dead_asked_for_counts() -> None:
    died = [*together(1.0, 1, SLOTS), left_step(2.0, 1, "died")]
    assert violation_of([*died, arrived(3.0, 99, here=range(1, SLOTS + 1))]) == "I4"


def test_i12_who_does_not_end_decides_for_his_time_alone() -> None:
    first = arrived(6.1, 1)
    assert violation_of([OPENED, first, left_step(6.5, 1, "died"), arrived(7.0, 2)]) == "I12"
    assert violation_of([OPENED, first, left_step(6.5, 1, "died"), arrived(66.2, 2)]) is None
    held_up = arrived(70.0, 3, let_in=6.1)
    assert violation_of([OPENED, arrived(66.2, 2), held_up]) is None
    assert violation_of([OPENED, arrived(66.0, 2), held_up]) == "I12"
