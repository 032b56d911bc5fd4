"""How experiments judge a rate: over any window, and with what an outage may add in windows that touch it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.limits.limit import BucketLimit
from tests.faults.support.rate import MICRO, most_over

LIMIT = BucketLimit("bucket", 10, 5)
OUTAGE = (10.0, 12.0)


def _at(*times_s: float) -> list[tuple[int, int]]:
    """One unit each."""
    return [(round(at_s * MICRO), MICRO) for at_s in times_s]


def _burst(at_s: float, units: int) -> list[tuple[int, int]]:
    return _at(*[at_s] * units)


@pytest.mark.parametrize(
    ("spends", "over"),
    [
        ([], 0.0),
        (_burst(1.0, 10), 0.0),
        (_burst(1.0, 13), 3.0),
        (_burst(1.0, 10) + _burst(2.0, 5), 0.0),
        (_burst(1.0, 10) + _burst(2.0, 7), 2.0),
        (_burst(1.0, 10) + _burst(60.0, 11), 1.0),  # what is saved is a burst at most
    ],
)
def test_the_worst_window(spends: list[tuple[int, int]], over: float) -> None:
    assert most_over(spends, LIMIT) == pytest.approx(over)


@pytest.mark.parametrize(
    ("at_s", "over"),
    [(9.0, 6.0), (10.0, 1.0), (11.0, 1.0), (12.0, 1.0), (13.0, 6.0)],
    ids=["before", "as it begins", "in it", "as it ends", "after"],
)
def test_an_outage_adds_to_windows_that_touch_it(at_s: float, over: float) -> None:
    assert most_over(_burst(at_s, 16), LIMIT, [OUTAGE], overlap_s=1.0) == pytest.approx(over)


def test_many_outages_do_not_add_up_in_a_window_of_one() -> None:
    outages = [(float(begin_s), begin_s + 1.0) for begin_s in range(0, 100, 10)]
    spends = [spend for begin_s, _ in outages for spend in _burst(begin_s + 0.5, 16)]
    assert most_over(spends, LIMIT, outages, overlap_s=1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("outages", [[(3.0, 4.0), (1.0, 2.0)], [(1.0, 3.0), (2.0, 4.0)], [(2.0, 1.0)]])
def test_outages_follow_each_other(outages: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="not in order"):
        most_over(_burst(1.0, 3), LIMIT, outages, overlap_s=1.0)


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=25),
    st.lists(st.integers(0, 400), max_size=6, unique=True),
    st.sampled_from((0.0, 0.5)),
)
def test_all_windows_one_by_one(tenths: list[int], edges: list[int], overlap_s: float) -> None:
    spends = _at(*(at / 10 for at in sorted(tenths)))
    borders = [at / 10 for at in sorted(edges)]
    outages = list(zip(borders[::2], borders[1::2], strict=False))
    worst = 0.0
    for first, (begin_us, _) in enumerate(spends):
        for last in range(first, len(spends)):
            begin_s, end_s = begin_us / MICRO, spends[last][0] / MICRO
            touched = sum(since_s <= end_s and until_s >= begin_s for since_s, until_s in outages)
            may = LIMIT.capacity + LIMIT.per_s * (end_s - begin_s + overlap_s * touched)
            worst = max(worst, last - first + 1 - may)
    assert most_over(spends, LIMIT, outages, overlap_s) == pytest.approx(worst)
