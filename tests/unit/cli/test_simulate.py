"""What a simulated load comes to, by figures that are given."""

from __future__ import annotations

import io
from array import array
from dataclasses import replace

import pytest

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.output import Output
from fairlead.demo.load import exit_code
from fairlead.demo.load.chart import chart
from fairlead.demo.load.load_plan import Load
from fairlead.demo.load.series import LoadReport, LoadSeries, percentile
from fairlead.demo.load.upstream import Upstream
from fairlead.policy.limits.limit import MICRO

LOAD = Load(
    seconds=10.0, tenants=2, processes=1, rate=10.0, per_s=5.0, capacity=10.0, slots=3,
    hold_s=0.1, wait_s=1.0, seed=1,
)  # fmt: skip


def upstream(*arrivals_s: float, load: Load = LOAD, most: int = 1, lag_s: float = 0.0) -> Upstream:
    """One at which calls of one tenant have arrived."""
    times = array("q", (round(at_s * MICRO) for at_s in arrivals_s))
    return Upstream(load, lambda _rank, _message: None, most=most, lag_s=lag_s, _arrivals={"t1": times})


def report(at: Upstream) -> LoadReport:
    return LoadReport(at.load, LoadSeries(at.load), at.check(max_admission_s=0.0), "Valkey")


def test_as_many_as_the_limit_lets_through_is_no_violation() -> None:
    burst = [1.0] * 10
    refilled = [1.0 + 0.2 * number for number in range(1, 6)]
    assert report(upstream(*burst, *refilled)).limit_held


def test_call_over_the_limit_is_counted() -> None:
    load_report = report(upstream(*[1.0] * 11))
    assert not load_report.limit_held
    assert load_report.check.over_units == pytest.approx(1.0)
    err = io.StringIO()
    assert exit_code(Output(stdout=io.StringIO(), stderr=err), load_report) is Exit.FAILED
    assert "1.00 calls too many" in err.getvalue()
    assert "hint: " in err.getvalue()


def test_calls_that_were_held_up_on_their_way_may_arrive_together() -> None:
    """The eleventh was let through 0.2 s after the tenth, which took so long to arrive."""
    assert report(upstream(*[1.0] * 11, lag_s=0.2)).limit_held
    assert not report(upstream(*[1.0] * 11, lag_s=0.19)).limit_held


def test_more_in_flight_than_slots_is_a_violation_whatever_the_rate() -> None:
    load_report = report(upstream(1.0, most=4))
    assert load_report.check.rate_held
    assert not load_report.limit_held
    assert report(upstream(1.0, most=4, load=replace(LOAD, slots=0))).limit_held


def test_each_sample_is_of_its_own_time() -> None:
    series = LoadSeries(LOAD)
    figures = {"refused": {"rate": 2}, "max_admission_s": 0.01, "waiting": 3}
    series.add(
        0, {**figures, "counts": {"offered": 6, "admitted": 4, "refused": 2}, "waits_ms": [1, 2, 3, 9]}
    )
    series.sample(2.0, 1, [])
    series.add(0, {**figures, "counts": {"offered": 1, "admitted": 1}, "waits_ms": [5], "waiting": 0})
    series.sample(3.0, 0, [])
    first, second = series.samples
    assert (first.offered_per_s, first.admitted_per_s, first.refused_per_s, first.waiting) == (3, 2, 1, 3)
    assert (first.p50_ms, first.p95_ms, first.level, first.slots_held) == (2, 9, None, None)
    assert (second.admitted_per_s, second.waiting, second.p99_ms) == (1, 0, 5)
    assert series.counts["admitted"] == 5


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([7.0], 0.99) == 7
    assert percentile([], 0.5) is None


def test_a_chart_fits_its_width_however_many_values_there_are() -> None:
    for count in (0, 1, 7, 500):
        lines = chart([1.0] * count, width=20, height=3)
        assert len(lines) == 4
        assert {len(line) for line in lines} == {4 + 2 + 20}
    empty, full = chart([None, 8.0], width=2, height=1)[0][-2:]
    assert (empty, full) == (" ", "█")
