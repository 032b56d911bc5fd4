"""docs/figures.md says what the results say, and README repeats only what is there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tools import figures, results
from tools.results import ROOT

NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def line(id: str, **counters: Any) -> dict[str, Any]:
    return {"id": id, "test": "t", "size": "full", "commit": "abc", "verdict": "holds", **counters}


def row(id: str, *lines: dict[str, Any]) -> list[str]:
    """Return the cells of one experiment, from *lines*."""
    cells = next(line for line in figures.table(lines).splitlines() if line.startswith(f"| {id} "))
    return cells.strip("| ").split(" | ")


def section(text: str, heading: str) -> str:
    """Return the text under *heading*."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_the_page_says_what_the_results_say() -> None:
    page = figures.PAGE.read_text("utf-8")
    assert page == figures.written(page, results.read()), "run: python -m tools.promises"


def test_a_row_adds_up_what_must_be_zero_and_shows_the_worst() -> None:
    first = line("E01", n=1000, lost=0, zeros=["lost"], resume_s={"p99": 1.5})
    other = line("E01", n=500, lost=0, zeros=["lost"], resume_s={"p99": 2.5}, commit="def")
    without = line("E01", ablation="no_fence", verdict="violation seen", lost=9, zeros=["lost"])
    cells = row("E01", first, other, without)
    assert cells[2] == "1,500"
    assert cells[3] == "lost 0 (3/n = 0.2 % of 1,500); resume p99 2.5 s"
    assert cells[4:] == ["no fence: violation seen", "abc, def"]
    assert row("E01", first, {**other, "lost": 2})[3] == "lost 2; resume p99 2.5 s"


def test_a_zero_is_of_its_own_chances() -> None:
    killed = line("E01", n=1000, kills=10, lost=0, zeros=["lost"])
    assert row("E01", killed)[3] == "lost 0 (3/n = 30 % of 10)", "jobs share the fate of a kill"
    also = line("E01", n=50, lost=0, missed=0, zeros=["lost", "missed"])
    assert row("E01", killed, also)[3] == "lost 0 (3/n = 5 % of 60); missed 0 (3/n = 6 % of 50)"
    once = line("E14", outages=1, n=900, lost=0, zeros=["lost"])
    assert row("E14", once)[3] == "lost 0 (n = 1)", "one chance bounds nothing"
    crashed = line("E36", n=300, crashes=0, early=0, zeros=["crashes", "early"])
    assert row("E36", crashed)[3] == "crashes 0, early 0 (3/n = 1 % of 300)", "no chances: it must be zero"


def test_jobs_of_a_load_are_no_chances() -> None:
    """All of them share the fate of one event, and the line does not report how often that happened."""
    load = {"n": 15_455, "told": {"stored": 3091}, "runs": 15_455, "lost": 0, "zeros": ["lost"]}
    assert row("E10", line("E10", **load))[3] == "lost 0"
    assert row("E10", line("E10", rollouts=1, **load))[3] == "lost 0 (n = 1)"
    beside = line("E10", n=40, unknown_states=0, zeros=["unknown_states"])
    assert row("E10", beside)[3] == "unknown states 0 (3/n = 7.5 % of 40)", "its n is of what was tried"


def test_the_deaths_by_a_bomb_are_the_chances_of_its_neighbours() -> None:
    """They share the fate of a death, however many were in flight."""
    bombs = line("E07", n=5, deaths=15, suspects=650, neighbours_lost=0, zeros=["neighbours_lost"])
    assert row("E07", bombs)[3] == "neighbours lost 0 (3/n = 20 % of 15)"


def test_a_share_is_told_in_per_cent() -> None:
    herd = line("E37", n=5, zeros=[], came_first_200_ms_percent=2.68)
    assert row("E37", herd)[3] == "came first 200 ms at most 2.68 %"


def test_of_two_tests_without_a_safeguard_both_are_told() -> None:
    without = [
        line("E12", ablation="naive", verdict=verdict) for verdict in ("violation seen", "nothing seen")
    ]
    assert row("E12", line("E12", n=4), *without)[4] == "naive: nothing seen, violation seen"


def test_a_row_tells_what_is_broken_and_what_was_not_run() -> None:
    assert row("E01", line("E01", verdict="broken", broken=["lost = 1"]))[3] == "**broken: t**"
    assert row("E01", line("E01", size="smoke", n=3))[3] == figures.NOT_YET
    assert "not built yet" in row("E48")[3]


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no"):
        figures.written("# Figures", [])


def test_the_figures_of_readme_stand_on_the_page() -> None:
    """All of a row of README in one row of the page."""
    fast = section((ROOT / "README.md").read_text("utf-8"), "How fast")
    rows_of_readme = [set(NUMBER.findall(row.split(" | ")[1])) for row in fast.splitlines() if " | " in row]
    page = section(figures.PAGE.read_text("utf-8"), "Benchmarks").splitlines()
    there = [set(NUMBER.findall(row)) for row in page if row.startswith("| ")]
    assert len(rows_of_readme) == 6, "four figures below the two lines of the head"
    assert [numbers for numbers in rows_of_readme[2:] if not any(numbers <= row for row in there)] == []
