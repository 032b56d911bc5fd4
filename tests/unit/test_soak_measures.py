"""What long runs are measured with: a slope that a few peaks do not tilt, and limits with their excuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults import test_e52_soak as soak
from tests.faults.support.growth import Growth, slope_an_hour
from tests.faults.support.load import finished_run_again, was_silent
from tests.faults.support.report import Figures, end_of_test
from tests.faults.support.sink import Run, Runs
from tests.faults.support.weather import Fault, excuses_of, most_over_rate, over_excused


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


def runs_of(folder: Path, *lines: tuple[float, int, str, str]) -> Runs:
    """A sink of one job: (time, process, lease, began or effect)."""
    records = [
        {"t": at, "pid": pid, "lease": lease, "ev": ev, "job": "one", "n": 1} for at, pid, lease, ev in lines
    ]
    (folder / "sink").write_text("".join(json.dumps(line) + "\n" for line in records))
    return Runs(folder / "sink")


CUT_OFF = ((10.0, 7, "a", "began"), (13.0, 8, "b", "began"), (14.0, 8, "b", "effect"))
ALL_DONE = ((10.0, 7, "a", "began"), (10.5, 7, "a", "effect"), (13.0, 8, "b", "began"))


@pytest.mark.parametrize(
    ("lines", "fault", "excused"),
    [
        (CUT_OFF, Fault("kill", 11.0, 12.0, pid=7), True),
        (CUT_OFF, Fault("kill", 11.0, 12.0, pid=9), False),  # another one was killed
        (CUT_OFF, Fault("database_cut", 11.0, 12.0), True),
        (CUT_OFF, Fault("redis_killed", 11.0, 12.0), False),  # costs no run
        (CUT_OFF, Fault("database_cut", 14.0, 15.0), False),  # came when it had run again
        (CUT_OFF, Fault("database_cut", 5.0, 8.0), False),  # was over when it began
        (ALL_DONE, Fault("database_cut", 11.0, 12.0), True),  # done, and not yet stored
        (ALL_DONE, Fault("database_cut", 12.0, 12.5), False),  # long stored
    ],
)
def test_a_run_too_many_needs_a_fault_of_its_time(
    tmp_path: Path, lines: tuple[tuple[float, int, str, str], ...], fault: Fault, excused: bool
) -> None:
    assert list(excuses_of(runs_of(tmp_path, *lines), [fault])) == [fault if excused else None]
    assert list(excuses_of(runs_of(tmp_path, *lines[:1]), [fault])) == []


@pytest.mark.parametrize(
    ("between", "again_s", "silent"),
    [
        ((), 15.5, True),
        ((), 13.5, False),  # taken from it too soon
        (((12.0, 7, "c", "began"),), 15.5, False),  # it was at work
        (((12.0, 8, "c", "began"),), 15.5, True),  # another one was
        (((10.2, 7, "c", "began"),), 15.5, True),  # before its last effect
    ],
)
def test_finished_job_of_a_silent_process_runs_again(
    tmp_path: Path, between: tuple[tuple[float, int, str, str], ...], again_s: float, silent: bool
) -> None:
    runs = runs_of(tmp_path, *ALL_DONE[:2], (again_s, 8, "b", "began"))
    for at, pid, lease, _ in between:
        runs.by_lease["another", lease] = Run(2, "another", lease, pid, at)
    [(first, again)] = finished_run_again(runs)
    assert (first.pid, again.pid) == (7, 8)
    assert was_silent(runs, first, again, 4.0) is silent
    assert not was_silent(runs, first, again, 4.0, until_s=10.5)  # by then it could have written it


def test_a_run_too_many_is_that_of_the_effect_before_it(tmp_path: Path) -> None:
    second = ((15.5, 8, "b", "began"), (15.6, 8, "b", "effect"))
    runs = runs_of(tmp_path, *ALL_DONE[:2], *second, (15.7, 8, "c", "began"))
    assert [(first.pid, again.lease) for first, again in finished_run_again(runs)] == [(7, "b"), (8, "c")]
    assert not was_silent(runs, *finished_run_again(runs)[1], 4.0)


def test_run_without_an_effect_may_repeat(tmp_path: Path) -> None:
    assert finished_run_again(runs_of(tmp_path, *CUT_OFF)) == []
    assert finished_run_again(runs_of(tmp_path, *ALL_DONE[:2])) == []


def test_the_rate_is_judged_in_each_window_and_an_excuse_holds_at_its_time() -> None:
    steady = [second / 10 for second in range(100)]
    rush = [*steady, *([50.0] * 8)]
    assert most_over_rate(steady, 2, 10.0, []) == 0.0
    assert most_over_rate(rush, 2, 10.0, []) == 6.0
    assert most_over_rate(rush, 2, 10.0, [(49.0, 51.0, 4.0)]) == 2.0
    assert most_over_rate(rush, 2, 10.0, [(20.0, 30.0, 4.0)] * 50) == 6.0
    assert most_over_rate([*rush, *([60.0] * 8)], 2, 10.0, [(49.0, 61.0, 6.0)]) == 6.0


@pytest.mark.parametrize(("connection_count", "missing"), [(0, 2), (30, 2), (100, 0)])
def test_a_process_that_was_never_measured_is_no_proof(
    monkeypatch: pytest.MonkeyPatch, connection_count: int, missing: int
) -> None:
    monkeypatch.setattr(soak, "HALF_AN_HOUR", True)
    baseline: dict[str, float] = {"connections": 5, "dead_tuples": 10}
    of_process: dict[str, float] = {"rss_mib": 80.0, "descriptors": 20}
    growth = Growth(cast("Any", None), 1, 1.0)
    growth.samples = [
        {"s": float(s), "changed": s * 100, **baseline, **(of_process if s < connection_count else {})}
        for s in range(100)
    ]
    figures = Figures("E52")
    soak._judge_growth(figures, growth)
    assert figures.counters["never_measured"] == missing
    assert (figures.verdict == "holds") is (missing == 0)
    end_of_test(None)
