"""The delay formula and its three jitters, against SPEC T word by word."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.failures.backoff import Jitter, backoff_s, jittered_s, nominal_delay_s

ALMOST_ONE = math.nextafter(1.0, 0.0)

attempts = st.one_of(st.integers(0, 40), st.integers(0, 10**30))
bases = st.floats(1e-6, 1e6)
draws = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("attempt", "factor", "expected_s"),
    [
        (0, 1, 1),
        (1, 1, 2),
        (2, 1, 4),
        (4, 1, 16),
        (5, 1, 30),
        (9, 1, 30),
        (0, 1.5, 1.5),
        (3, 1.5, 12),
        (5, 1.5, 30),
    ],
)
def test_nominal_delay_doubles_up_to_its_cap(attempt: int, factor: float, expected_s: float) -> None:
    assert nominal_delay_s(attempt, base_s=1, cap_s=30, factor=factor) == expected_s


@pytest.mark.parametrize("attempt", [1000, 1024, 10**6, 10**30])
def test_huge_attempts_reach_the_cap_and_overflow_nothing(attempt: int) -> None:
    assert nominal_delay_s(attempt, base_s=1e300, cap_s=60, factor=1e300) == 60
    assert nominal_delay_s(attempt, base_s=1e-9, cap_s=60) == 60


@pytest.mark.parametrize(
    ("jitter", "at_0", "at_half", "at_almost_1"),
    [(Jitter.FULL, 0, 10, 20), (Jitter.EQUAL, 10, 15, 20), (Jitter.PROPORTIONAL, 15, 20, 25)],
)
def test_jitters(jitter: Jitter, at_0: float, at_half: float, at_almost_1: float) -> None:
    assert jittered_s(20, jitter, 0) == at_0
    assert jittered_s(20, jitter, 0.5) == at_half
    assert jittered_s(20, jitter, ALMOST_ONE) == pytest.approx(at_almost_1)


@pytest.mark.parametrize("draw", [-0.1, 1, 1.5, math.nan, math.inf])
def test_a_draw_outside_its_range_is_a_bug_of_the_caller(draw: float) -> None:
    with pytest.raises(ValueError, match="hint:"):
        jittered_s(1, Jitter.FULL, draw)


@pytest.mark.parametrize(
    ("attempt", "base_s", "cap_s", "factor"),
    [
        (-1, 1, 1, 1),
        (0, -1, 1, 1),
        (0, math.nan, 1, 1),
        (0, 1, math.inf, 1),
        (0, 1, math.nan, 1),
        (0, 1, 1, -2),
    ],
)
def test_impossible_numbers_are_refused(attempt: int, base_s: float, cap_s: float, factor: float) -> None:
    with pytest.raises(ValueError, match="hint:"):
        nominal_delay_s(attempt, base_s=base_s, cap_s=cap_s, factor=factor)


@given(
    attempt=attempts,
    base_s=bases,
    cap_s=bases,
    factor=st.floats(0.1, 10),
    jitter=st.sampled_from(Jitter),
    draw=draws,
)
def test_never_below_zero_never_beyond_the_cap(
    attempt: int, base_s: float, cap_s: float, factor: float, jitter: Jitter, draw: float
) -> None:
    delay_s = backoff_s(attempt, base_s=base_s, cap_s=cap_s, jitter=jitter, draw=draw, factor=factor)
    room = 1.25 if jitter is Jitter.PROPORTIONAL else 1  # ± 25 % of d is SPEC's word
    assert 0 <= delay_s <= cap_s * room * (1 + 1e-12)


@given(attempt=st.integers(0, 2000), base_s=bases, cap_s=bases, jitter=st.sampled_from(Jitter), draw=draws)
def test_a_later_attempt_never_waits_less_at_the_same_draw(
    attempt: int, base_s: float, cap_s: float, jitter: Jitter, draw: float
) -> None:
    waits = [
        backoff_s(n, base_s=base_s, cap_s=cap_s, jitter=jitter, draw=draw) for n in (attempt, attempt + 1)
    ]
    assert waits[0] <= waits[1]


@given(base_s=bases, jitter=st.sampled_from(Jitter), draws=st.tuples(draws, draws))
def test_a_larger_draw_never_waits_less(base_s: float, jitter: Jitter, draws: tuple[float, float]) -> None:
    low, high = sorted(draws)
    assert jittered_s(base_s, jitter, low) <= jittered_s(base_s, jitter, high)
