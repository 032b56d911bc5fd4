"""The judge of logs: a good one passes, and each kind of bad one is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.limits.event_log_check import verify_bucket_log
from fairlead.policy.limits.limit import MICRO
from tests.support.pool_verdict import PoolCheck, PoolEvent, verify_pool_log

Line = tuple[str, str, int]  # kind, holder, in use after it

GOOD: Sequence[Line] = (
    ("grant", "a", 1),
    ("grant", "b", 2),
    ("wait", "c", 2),
    ("wait", "d", 2),
    ("release", "a", 1),
    ("hand", "c", 2),
    ("claim", "c", 2),
    ("expire", "b", 1),
    ("promote", "d", 2),
    ("late", "b", 2),
    ("release", "c", 1),
    ("release", "d", 0),
)


def log(*lines: Line, capacity: int = 2) -> list[PoolEvent]:
    return [PoolEvent(kind, at, used, capacity, holder) for at, (kind, holder, used) in enumerate(lines)]


def broken(verdict: PoolCheck) -> set[str]:
    names = ("over_admissions", "leaked", "doubled", "unmatched", "miscounted", "out_of_order")
    return {name for name in names if getattr(verdict, name)}


def test_a_good_log_is_counted() -> None:
    verdict = verify_pool_log(log(*GOOD), holding=(), in_order_within_us=0)
    assert verdict.violation == ""
    assert broken(verdict) == set()
    assert (verdict.granted, verdict.handed, verdict.promoted, verdict.claimed) == (4, 1, 1, 1)
    assert (verdict.released, verdict.expired, verdict.late, verdict.held, verdict.most) == (3, 1, 1, 0, 2)


def test_an_empty_log_proves_nothing_bad() -> None:
    assert verify_pool_log([], holding=()).violation == ""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([("grant", "a", 1), ("grant", "b", 2), ("grant", "c", 3)], "over_admissions"),
        ([("grant", "a", 1), ("grant", "a", 1)], "doubled"),
        ([("grant", "a", 1), ("hand", "a", 1)], "doubled"),
        ([("grant", "a", 1), ("release", "a", 0), ("release", "a", 0)], "unmatched"),
        ([("release", "a", 0)], "unmatched"),
        ([("expire", "a", 0)], "unmatched"),
        ([("claim", "a", 0)], "unmatched"),
        ([("grant", "a", 1), ("late", "a", 1)], "unmatched"),
        ([("gift", "a", 0)], "unmatched"),
        ([("grant", "a", 2)], "miscounted"),
        ([("grant", "a", 1), ("release", "a", 1)], "miscounted"),
        ([("grant", "a", 1)], "leaked"),
    ],
)
def test_a_bad_log_is_found(lines: list[Line], expected: str) -> None:
    verdict = verify_pool_log(log(*lines), holding=())
    assert expected in broken(verdict)
    assert verdict.violation


def test_after_a_shrink_nothing_is_granted_until_there_is_room() -> None:
    events = [
        PoolEvent("grant", 1, 1, 2, "a"),
        PoolEvent("grant", 2, 2, 2, "b"),
        PoolEvent("release", 3, 1, 1, "a"),
    ]
    over = verify_pool_log([*events, PoolEvent("grant", 4, 2, 1, "c")])
    assert over.over_admissions == 1
    assert over.violation == "2 slots of 1: grant at 4 of 'c'"
    ended = [*events, PoolEvent("release", 4, 0, 1, "b"), PoolEvent("grant", 5, 1, 1, "c")]
    assert verify_pool_log(ended, holding="c").violation == ""


def test_adopted_slots_may_exceed_the_capacity_but_no_grant_on_top() -> None:
    lines: list[Line] = [("grant", "a", 1), ("again", "b", 2)]
    verdict = verify_pool_log(log(*lines, capacity=1))
    assert (verdict.over_adopted, verdict.over_admissions, verdict.adopted) == (1, 0, 1)
    assert (
        verify_pool_log(log(*lines, ("release", "a", 1), ("grant", "c", 2), capacity=1)).over_admissions == 1
    )


def timed_log(*lines: str, capacity: int = 1) -> list[PoolEvent]:
    """Each line: what, when, how many are in use after it, whose."""
    fields = [line.split() for line in lines]
    return [PoolEvent(kind, int(at_us), int(used), capacity, name) for kind, at_us, used, name in fields]


def test_order_of_waiters_is_kept_within_the_tolerance() -> None:
    lines = timed_log("grant 0 1 a", "wait 10 1 b", "wait 30 1 c", "release 40 0 a", "hand 40 1 c")
    assert verify_pool_log(lines, in_order_within_us=19).out_of_order == 1
    assert verify_pool_log(lines, in_order_within_us=20).out_of_order == 0
    assert verify_pool_log(lines).violation == ""
    events = [*lines[:3], PoolEvent("absent", 35, 1, 1, "b"), *lines[3:]]
    assert verify_pool_log(events, in_order_within_us=0).violation == ""


def test_whose_grant_ended_unclaimed_keeps_his_place() -> None:
    first_lines = ("grant 0 1 a", "wait 10 1 b", "wait 20 1 c", "release 30 0 a", "hand 30 1 b")
    lines = timed_log(*first_lines, "expire 40 0 b", "wait 41 0 b", "hand 41 1 b")
    assert verify_pool_log(lines, in_order_within_us=0).violation == ""


def test_grant_past_a_waiter_is_out_of_order() -> None:
    lines = timed_log("grant 0 1 a", "wait 10 1 b", "grant 30 2 c", capacity=2)
    assert verify_pool_log(lines, in_order_within_us=0).out_of_order == 1


def test_an_orphan_is_timed_and_never_early() -> None:
    grant = PoolEvent("grant", 0, 1, 1, "a")
    assert (
        verify_pool_log([grant, PoolEvent("expire", 1_500_000, 0, 1, "a", 1_000_000)]).longest_orphan_s == 0.5
    )
    assert verify_pool_log([grant, PoolEvent("expire", 999_999, 0, 1, "a", 1_000_000)]).unmatched == 1


# ---- buckets


def test_a_bucket_may_give_its_burst_and_its_rate() -> None:
    spends = [(0, 5 * MICRO), *((second * MICRO, 2 * MICRO) for second in range(1, 10))]
    verdict = verify_bucket_log(spends, capacity=5 * MICRO, rate=2 * MICRO)
    assert (verdict.calls, verdict.spent, verdict.max_excess, verdict.violation) == (10, 23.0, 0.0, "")


def test_excess_of_a_micro_unit_is_found() -> None:
    verdict = verify_bucket_log([(0, 5 * MICRO), (MICRO, 2 * MICRO + 1)], capacity=5 * MICRO, rate=2 * MICRO)
    assert verdict.violation
    assert verdict.max_excess == pytest.approx(1e-6)


def test_a_clock_that_is_set_back_gives_nothing() -> None:
    spends = [(10 * MICRO, MICRO), (0, MICRO), (MICRO, MICRO)]
    assert verify_bucket_log(spends, capacity=2 * MICRO, rate=MICRO).violation == ""
    assert verify_bucket_log([*spends, (MICRO, MICRO)], capacity=2 * MICRO, rate=MICRO).violation


@given(
    st.lists(st.tuples(st.integers(0, 4_000_000), st.integers(1, 4_000_000)), max_size=12),
    st.integers(1, 5_000_000),
    st.integers(1, 5_000_000),
)
def test_single_replay_agrees_with_all_windows(
    steps: list[tuple[int, int]], capacity: int, rate: int
) -> None:
    spends, at_us = [], 0
    for step_us, cost in steps:
        at_us += step_us
        spends.append((at_us, cost))
    over = max(
        (
            sum(cost for _, cost in spends[first : last + 1]) * MICRO
            - capacity * MICRO
            - rate * (spends[last][0] - spends[first][0])
            for first in range(len(spends))
            for last in range(first, len(spends))
        ),
        default=0,
    )
    verdict = verify_bucket_log(spends, capacity=capacity, rate=rate)
    assert verdict.max_excess == max(0, over) / MICRO / MICRO
    assert bool(verdict.violation) == (over > 0)
