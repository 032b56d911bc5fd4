"""README's promises say what the results say, and a figure that nobody found is not told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.catalogue import CATALOGUE
from tools import promises, results
from tools.promises import PROMISES


def row(id: str, *lines: dict[str, Any]) -> list[str]:
    """The cells of one promise, as *lines* have it."""
    found = next(line for line in promises.table(lines).splitlines() if line.startswith(f"| {id} "))
    return found.strip("| ").split(" | ")


def line(id: str, **counters: Any) -> dict[str, Any]:
    return {"id": id, "test": "t", "size": "full", "commit": "abc", "verdict": "holds", **counters}


def test_readme_says_what_the_results_say() -> None:
    readme = promises.README.read_text("utf-8")
    assert readme == promises.written(readme, results.read()), "run: python -m tools.promises"


def test_each_promise_has_a_row_and_its_experiments_stand_for_it() -> None:
    assert [promise.id for promise in PROMISES] == [f"P{number}" for number in range(1, 16)]
    stand_for = {each.id: each.promises for each in CATALOGUE}
    wrong = [
        (promise.id, name)
        for promise in PROMISES
        for part in promise.parts
        for name in part.experiments
        if promise.id not in stand_for.get(name, [promise.id])
    ]
    assert wrong == []


def test_zeros_are_added_up_with_the_most_they_may_be() -> None:
    lines = (line("E01", lost=0, n=900), line("E13", lost=0, n=600), line("E12", false_success=0, n=84))
    _, figure, n, most, _, _ = row("P1", *lines)
    assert figure.startswith("accepted jobs lost 0; commits in doubt that were told wrongly 0 (commit abc")
    assert figure.endswith("; E11, E02 not run yet at this commit)")
    assert (n, most) == ("1,500; 84", "0.2 %; 3.6 %")


def test_the_worst_is_told() -> None:
    lines = (line("E38-queues", amplification=1.01, n=5), line("E38-sheds", amplification=1.15, n=5))
    assert row("P10", *lines)[1] == "requests a call 1.15 (commit abc)"
    windows = {"p50": 1.5, "p99": 11.7, "max": 20.0}
    assert "window p50 1.5 ms; p99 11.7 ms" in row("P6", line("E43", window_ms=windows, window_n=9))[1]


def test_what_is_broken_is_told() -> None:
    _, figure, _, most, _, _ = row("P2", line("E03", stale_accepted=1, n=75, verdict="broken"))
    assert figure.startswith("late writes accepted 1 ")
    assert figure.endswith("**broken: E03**")
    assert most == "–"


@pytest.mark.parametrize("other", [{"size": "smoke"}, {"ablation": "x"}])
def test_a_smoke_run_or_one_without_a_safeguard_is_no_proof(other: dict[str, str]) -> None:
    assert row("P2", line("E03", stale_accepted=0, n=3) | other)[1] == promises.NOT_YET


def test_what_readme_told_before_stands_until_it_is_run_again() -> None:
    seed = {"id": "README", "promise": "P5", "figure": "three", "n": 5, "commit": "old"}
    assert row("P5", seed)[1:3] == ["three (commit old)", "5"]
    assert row("P5", seed, line("E07", crashes_of_a_bomb=2, n=5))[1].startswith(
        "processes killed by one job 2"
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [(1.0, "100 %"), (3 / 84, "3.6 %"), (3 / 1500, "0.2 %"), (3 / 87720, "0.0034 %"), (3e-7, "0.00003 %")],
)
def test_shares(value: float, told: str) -> None:
    assert promises.share(value) == told
