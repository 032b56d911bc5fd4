"""What the soak measures with: a slope that a few peaks do not tilt, and a limit with its excuses."""

from __future__ import annotations

from tests.faults.support.growth import slope_an_hour
from tests.faults.support.weather import over_excused


def test_a_leak_is_seen_as_it_is() -> None:
    assert slope_an_hour([(float(s), 100 + s / 60) for s in range(600)]) == 60.0


def test_peaks_are_no_slope() -> None:
    flat = [(float(s), 100.0 + (50 if s % 10 == 0 else 0)) for s in range(601)]
    assert slope_an_hour(flat) == 0.0


def test_of_too_little_nothing_is_said() -> None:
    assert slope_an_hour([(1.0, 5.0)]) == 0.0


def test_more_than_the_limit_counts_where_nothing_excuses_it() -> None:
    served = [(1.0, 1), (2.0, 1), (3.0, -1), (4.0, 1), (5.0, -1), (5.0, -1)]
    assert over_excused(served, 2, []) == 0
    assert over_excused(served, 1, []) == 2
    assert over_excused(served, 1, [(1.5, 2.5, 1)]) == 1
    assert over_excused(served, 1, [(1.5, 4.5, 1)]) == 0
