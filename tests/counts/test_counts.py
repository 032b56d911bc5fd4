"""The guard by counts: no hot operation costs more than its ceiling (R47)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counts.ceilings import CEILINGS, PYTHON, Ceiling

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

Figures = dict[str, float]


@pytest.fixture(scope="module")
def measured() -> dict[str, Figures]:
    """All figures, by what was planted; counted in a process of its own."""
    command = [sys.executable, "-m", "tests.counts.measure"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    figures: dict[str, Figures] = json.loads(process.stdout)
    return figures


def passed(figures: Figures) -> dict[str, str]:
    """Return the figures that pass their ceiling, in words."""
    ceilings = [ceiling for ceiling in CEILINGS if ceiling.figure in figures and is_judged(ceiling)]
    return {
        ceiling.figure: f"{figures[ceiling.figure]:g} is above {ceiling.at_most:g} ({ceiling.reason})"
        for ceiling in ceilings
        if ceiling.is_passed_by(figures[ceiling.figure])
    }


def is_judged(ceiling: Ceiling) -> bool:
    """Return whether this version of Python is the one that *ceiling* is for."""
    return not ceiling.calls or sys.version_info[:2] == PYTHON


def test_each_figure_has_a_ceiling(measured: dict[str, Figures]) -> None:
    assert measured["as_is"].keys() == {ceiling.figure for ceiling in CEILINGS}


@pytest.mark.parametrize("figure", [ceiling.figure for ceiling in CEILINGS])
def test_no_hot_operation_costs_more_than_its_ceiling(measured: dict[str, Figures], figure: str) -> None:
    assert passed(measured["as_is"]).get(figure) is None


@pytest.mark.parametrize(
    ("plant", "figures"),
    [
        ("executor_job", {"refresh.alone.executor_jobs", "refresh.alone.wake_ups"}),
        ("statement", {"refresh.alone.statements"}),
        ("index", {"job.claim.wal_bytes", "job.completion.wal_bytes"}),
    ],
)
def test_a_planted_executor_job_statement_or_index_fails_the_guard(
    measured: dict[str, Figures], plant: str, figures: set[str]
) -> None:
    assert passed(measured[plant]).keys() == figures
