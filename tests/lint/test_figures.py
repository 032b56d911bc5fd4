"""docs/figures.md says what the results say, and README repeats nothing that is not there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.faults.catalogue import CATALOGUE
from tools import figures, promises, results

NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def line(id: str, **counters: Any) -> dict[str, Any]:
    return {"id": id, "test": "t", "size": "full", "commit": "abc", "verdict": "holds", **counters}


def row(id: str, *lines: dict[str, Any]) -> list[str]:
    """The cells of one experiment, as *lines* have it."""
    found = next(line for line in figures.table(lines).splitlines() if line.startswith(f"| {id} "))
    return found.strip("| ").split(" | ")


def section(text: str, heading: str) -> str:
    """What stands under *heading*."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_the_page_says_what_the_results_say() -> None:
    page = figures.PAGE.read_text("utf-8")
    assert page == figures.written(page, results.read()), "run: python -m tools.promises"


def test_each_experiment_has_a_row() -> None:
    rows = figures.table([]).splitlines()[2:]
    assert [row.split()[1] for row in rows] == [each.id for each in CATALOGUE]


def test_a_row_adds_up_what_must_be_zero_and_shows_the_worst() -> None:
    one = line("E01", n=1000, lost=0, zeros=["lost"], resume_s={"p99": 1.5})
    other = line("E01", n=500, lost=0, zeros=["lost"], resume_s={"p99": 2.5}, commit="def")
    without = line("E01", ablation="no_fence", verdict="violation seen", lost=9, zeros=["lost"])
    cells = row("E01", one, other, without)
    assert cells[2:] == [
        "1,500",
        "lost 0 (3/n = 0.2 %); resume p99 2.5 s",
        "no fence: violation seen",
        "abc, def",
    ]
    assert "lost 0 (3/n = 30 %)" in row("E01", {**one, "kills": 10})[3], "jobs share the fate of a kill"
    assert row("E01", one, {**other, "lost": 2})[3] == "lost 2; resume p99 2.5 s"


def test_a_row_tells_what_is_broken_and_what_was_not_run() -> None:
    assert row("E01", line("E01", verdict="broken", broken=["lost = 1"]))[3] == "**broken: t**"
    assert row("E01", line("E01", size="smoke", n=3))[3] == figures.NOT_YET
    assert "does not exist yet" in row("E48")[3]


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no"):
        figures.written("# Figures", [])


def test_the_figures_of_readme_stand_on_the_page() -> None:
    fast = section(promises.README.read_text("utf-8"), "How fast")
    cells = [row.split(" | ")[1] for row in fast.splitlines() if row.startswith("| ") and " | " in row]
    told = {number for cell in cells for number in NUMBER.findall(cell)}
    there = set(NUMBER.findall(section(figures.PAGE.read_text("utf-8"), "Benchmarks")))
    assert len(told) > 10
    assert told <= there
