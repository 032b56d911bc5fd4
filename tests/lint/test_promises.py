"""docs/reliability.md says what the results say, and README repeats nothing that is not there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.catalogue import CATALOGUE, Experiment
from tests.lint.test_figures import NUMBER, section
from tests.security.checklist import CHECKLIST
from tools import promises, results
from tools.promise import Most, Zero, share
from tools.promises import PROMISES
from tools.results import ROOT


def row(id: str, *lines: dict[str, Any]) -> list[str]:
    """Return the parts of the section of one promise, as *lines* have it."""
    section = promises.section(next(promise for promise in PROMISES if promise.id == id), lines)
    figures = "<br>".join(section.figures) or "–"
    return [id, figures, section.commits, section.commands, section.promise.limit]


def line(id: str, **counters: Any) -> dict[str, Any]:
    return {"id": id, "test": "t", "size": "full", "commit": "abc", "verdict": "holds", **counters}


def test_the_page_says_what_the_results_say() -> None:
    page = promises.PAGE.read_text("utf-8")
    assert page == promises.written(page, results.read()), "run: python -m tools.promises"


def test_readme_repeats_five_promises_with_figures_of_the_page() -> None:
    """Each item links to a promise, and all its numbers are in that promise's section."""
    text = section((ROOT / "README.md").read_text("utf-8"), "What you can rely on")
    items = [item for item in text.split("\n- ")[1:] if "reliability.md#" in item]
    assert len(items) == 5
    lines = results.read()
    for item in items:
        (id,) = re.findall(r"reliability\.md#(p\d+)\)", item)
        promise = next(promise for promise in PROMISES if promise.id == id.upper())
        numbers = set(NUMBER.findall(item.partition("](")[0]))
        assert numbers, item
        assert numbers <= set(NUMBER.findall(str(promises.section(promise, lines)))), item


def test_each_promise_has_a_row_and_its_experiments_stand_for_it() -> None:
    assert [promise.id for promise in PROMISES] == [f"P{number}" for number in range(1, 16)]
    stand_for = {entry.id: entry.promises for entry in CATALOGUE}
    wrong = [
        (promise.id, name)
        for promise in PROMISES
        for part in promise.parts
        for name in part.experiments
        if promise.id not in stand_for.get(name, [promise.id])
    ]
    assert wrong == []


OF_THE_CATALOGUE = [(entry.id, promise) for entry in CATALOGUE for promise in entry.promises]


@pytest.mark.parametrize(("name", "promise"), OF_THE_CATALOGUE)
def test_a_row_tells_of_each_experiment_that_the_catalogue_names_for_it(name: str, promise: str) -> None:
    broken = line(name, verdict="broken", broken=["gone"])
    assert row(promise, broken)[1:3][0] == f"**broken: {name}**"
    assert row(promise, broken)[2].startswith("abc")
    beside = row(promise, *results.read(), broken)[1].partition("**<br>")[0]  # others may be broken, too
    assert name in beside.removeprefix("**broken: ").split(", ")
    for other in (entry for entry, theirs in OF_THE_CATALOGUE if theirs == promise and entry != name):
        assert name in row(promise, line(other, verdict="broken"))[2], "it was not run"


@pytest.mark.parametrize("entry", [entry for entry in CATALOGUE if entry.files], ids=lambda entry: entry.id)
def test_the_command_of_a_row_runs_each_of_its_experiments(entry: Experiment) -> None:
    for promise in entry.promises:
        command = row(promise)[3]
        assert "make soak" in command if entry.id == promises.SOAK else entry.id in command


def test_events_count_where_jobs_share_their_fate() -> None:
    crashes = {"immediate": 10, "killed": 10}
    lines = (
        line("E01", lost=0, n=900, kills=12),
        line("E13", lost=0, n=600, crashes=crashes),
        line("E12", false_success=0, n=84),
    )
    _, figure, commit, _, _ = row("P1", *lines)
    assert figure.split("<br>") == [
        "accepted jobs lost when workers are killed or drained: 0"
        " (n = 12 deaths or drains with 900 jobs, 3/n = 25 %)",
        "accepted jobs lost when PostgreSQL crashes, fails over or has a full disk: 0"
        " (n = 20 faults with 600 jobs, 3/n = 15 %)",
        "commits of unknown outcome that were reported wrongly: 0 (n = 84 commits, 3/n = 3.6 %)",
    ]
    assert commit == "abc; E02, E05, E08, E10, E11, E15, E17, E52 not run yet"


def test_chances_are_what_could_have_gone_wrong() -> None:
    late = (line("E03", stale_accepted=0, n=75, late_writes_refused=90), line("E01", stale_accepted=0, n=9))
    assert row("P2", *late)[1] == "late writes accepted: 0 (n = 90 late writes, 3/n = 3.3 %)"
    parts = [line("E02", what=part, illegal_states=0, n=n) for part, n in (("jobs", 30), ("refreshes", 7))]
    assert "(n = 30 kills, 3/n = 10 %)" in row("P1", *parts)[1]
    assert "(n = 7 kills, 3/n = 43 %)" in row("P6", *parts)[1]


def test_late_writes_of_each_kind_are_chances() -> None:
    refused = line("E03", stale_accepted=0, late_writes_refused={"result": 78, "retry": 26})
    assert row("P2", refused)[1] == "late writes accepted: 0 (n = 104 late writes, 3/n = 2.9 %)"


def test_a_backend_that_rested_is_no_chance() -> None:
    ended = line("E11", lost=0, n=900, backends_ended=300, at_work=240)
    earlier = line("E11", lost=0, n=100, backends_ended=60)
    assert "(n = 300 backends at work with 1,000 jobs" in row("P1", ended, earlier)[1]


def test_commits_of_jobs_and_of_refreshes_are_told_apart() -> None:
    zeros = {"false_success": 0, "duplicates": 0, "burnt": 0}
    kinds = (("enqueue", 40), ("claim", 50), ("intent, sent mark, save", 300))
    lines = [line("E12", what=part, n=n, **zeros) for part, n in kinds]
    assert "(n = 90 commits," in row("P1", *lines)[1]
    assert "(n = 90 commits," in row("P3", *lines)[1]
    assert "(n = 300 commits," in row("P6", *lines)[1]


def test_the_deaths_by_a_bomb_are_the_chances_of_its_neighbours() -> None:
    bombs = line("E07", n=5, deaths=15, suspects=650, neighbours_lost=0, attempts_lost=0)
    expected = "jobs beside it that lost an attempt or more: 0 among 650 suspects (n = 15 deaths, 3/n = 20 %)"
    assert row("P5", bombs)[1] == expected


def test_calls_that_are_refused_or_lose_their_slot_have_failed() -> None:
    hurt = line("E21", failed=0, refused=2, slots_lost=1, kills=10, n=900)
    earlier = line("E22", failed=0, flushes=5, n=100)
    closed = line("E21", failed=0, slots_lost=0, sent_without_the_store=0, kills=10, n=900)
    expected = "calls that failed, were refused or lost their slot: 3 (n = 15 faults with 1,000 calls)"
    assert row("P15", hurt, earlier, closed)[1] == expected, "where it is so set they are refused by right"
    assert row("P15", closed)[1] == "–"


def test_losses_inside_the_window_are_a_figure_of_their_own() -> None:
    cut = line(
        "E43", n=6, burnt_where_it_can_be_had_again=0, burnt_where_nobody_can_help=4, lost_without_grace=4
    )
    killed = line("E43", n=8, burnt_outside_window=0, burnt_where_nobody_can_help=7, lost_without_grace=9)
    zero, beyond_help = row("P6", cut, killed)[1].split("<br>")
    assert zero == "lost outside the window: 0 (n = 14 requests or faults, 3/n = 21 %)"
    assert beyond_help.endswith(" confirmed the fsync: 11 (n = 13 such responses)")


@pytest.mark.parametrize("without", [{}, {"late_writes_refused": 0}])
def test_a_figure_without_its_n_is_not_dropped_in_silence(without: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="E03 t: a figure without its n, late_writes_refused"):
        row("P2", line("E03", stale_accepted=0, n=5, **without))


def test_experiment_without_its_part_is_named_as_not_built() -> None:
    assert "E49: not built yet: mail" in row("P3", line("E09"))[2]


def test_p99_and_the_last_one_are_told() -> None:
    recovery = {"p50": 0.4, "p99": 1.8, "max": 2.5}
    presumed = {"what": "death is presumed", "recovery_bound_s": 7.5, "kills": 12}
    proven = line("E01", what="death is proven", recovery_s={"p99": 0.3, "max": 0.4}, in_flight_at_kills=30)
    cells = row("P4", line("E01", recovery_s=recovery, in_flight_at_kills=40, **presumed), proven)
    assert cells[1].split("<br>") == [
        "time until the jobs of a killed process run again, where its death is proven, p99: 0.3 s"
        " (n = 30 jobs in flight)",
        "the last job: 0.4 s (n = 30 jobs in flight)",
        "the same where the death is presumed, at a lease of 5 s, p99: 1.8 s (n = 40 jobs in flight)",
        "the last job: 2.5 s (n = 40 jobs in flight)",
        "bound of a lease of 5 s, a sweep of a sixth of it, and 1 s: 7.5 s (n = 12 kills)",
    ]


def reported_in(file: Path) -> Iterator[str]:
    """Yield keywords and keys that *file* and its imports from our tests may put into a line."""
    tree = ast.parse(file.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (word.arg for word in node.keywords if word.arg)
        elif isinstance(node, ast.Dict):
            yield from (word for key in node.keys for word in worded(key, tree))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.faults.support."):
            yield from reported_in((results.ROOT / (node.module or "").replace(".", "/")).with_suffix(".py"))


def worded(key: ast.expr | None, tree: ast.Module) -> list[str]:
    """Return the string *key*; for f"{name}_ms" all strings that the names in *tree* give."""
    match key:
        case ast.Constant(value=str(word)):
            return [word]
        case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str(ending))]):
            return [
                f"{node.value}{ending}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and str(node.value).isidentifier()
            ]
    return []


def files_of(name: str) -> list[Path]:
    """Return the files that write the lines of an experiment or a control."""
    for entry in CATALOGUE:
        if entry.id == name:
            return [results.ROOT / "tests/faults" / file for file in entry.files]
    [control] = [entry for entry in CHECKLIST if entry.id == name]
    paths = {results.ROOT / node.partition("::")[0] for node in control.node_ids}
    return [path for path in paths if f'"{name}' in path.read_text("utf-8")]


PARTS = [(promise.id, part) for promise in PROMISES for part in promise.parts]


@pytest.mark.parametrize(("id", "part"), PARTS)
def test_counters_of_a_promise_stand_in_the_test_of_its_experiment(id: str, part: Zero | Most) -> None:
    reported = {
        name: {word for file in files_of(name) for word in reported_in(file)} for name in part.experiments
    }
    for name, words in reported.items():
        assert words & set(part.required), f"{name} tells none of {part.required}"
        assert words & set(part.of), f"{name} tells no {part.of}"
    assert set(part.required) <= set().union(*reported.values())


def test_counters_of_a_promise_stand_in_the_stored_results() -> None:
    assert promises.missing_counters(results.read()) == []


def test_a_line_without_what_is_asked_of_it_is_seen() -> None:
    assert promises.missing_counters([line("E03", stale_accepted=0, late_writes_refused=3)]) == []
    for wrong in (
        line("E03", stale=0, late_writes_refused=3),
        line("E03", stale_accepted=0),
        line("E03", stale_accepted=0, late_writes_refused=0),
    ):
        assert len(promises.missing_counters([wrong])) == 1, wrong


def test_a_line_of_another_part_than_what_is_asked_is_seen() -> None:
    def missing(*parts: str) -> list[str]:
        counters = {"illegal_states": 0, "n": 3}
        return promises.missing_counters([line("E02", what=part, **counters) for part in parts])

    assert missing("jobs", "refreshes") == []
    assert missing("jobs", "ticks")[0].startswith("P6 asks E02 for illegal_states of n of refreshes")


def test_the_worst_is_told() -> None:
    lines = (line("E38-queues", amplification=1.01, sent=5), line("E38-sheds", amplification=1.15, sent=5))
    worse = "requests per call, the worse of an API that queues and one that sheds load: 1.15"
    assert row("P10", *lines)[1] == f"{worse} (n = 10 calls sent)"
    windows = {"p50": 1.5, "p99": 11.7, "max": 20.0}
    cell = row("P6", line("E43", window_ms=windows, window_n=9))[1]
    assert cell.split("<br>") == [
        "window, p50: 1.5 ms (n = 9 refreshes)",
        "window, p99: 11.7 ms (n = 9 refreshes)",
    ]


def test_broken_experiment_is_named() -> None:
    harm = line("E03", stale_accepted=1, n=75, late_writes_refused=75, verdict="broken")
    assert row("P2", harm)[1] == "**broken: E03**<br>late writes accepted: 1 (n = 75 late writes)"


def test_canaries_are_told_with_where_they_were_looked_for() -> None:
    """Two runs bound nothing, however many canaries and places they had."""
    found_line = line("S13", canary_found=0, n=2, canaries=480, places=310, bytes=7_000_000)
    around = "480 canaries, 310 places, 7,000,000 bytes"
    assert row("P12", found_line)[1] == f"planted secrets found: 0 among {around} (n = 2 runs)"


def test_a_zero_of_what_is_broken_bounds_nothing() -> None:
    harm = line("E03", stale_accepted=0, n=75, late_writes_refused=75, verdict="broken")
    assert row("P2", harm)[1] == "**broken: E03**<br>late writes accepted: 0 (n = 75 late writes)"


@pytest.mark.parametrize("other", [{"size": "smoke"}, {"ablation": "x"}])
def test_a_smoke_run_or_one_without_a_safeguard_is_no_proof(other: dict[str, str]) -> None:
    assert row("P2", line("E03", stale_accepted=0, n=3) | other)[1:3] == ["–", promises.NOT_YET]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100 %"), (3 / 84, "3.6 %"), (3 / 1500, "0.2 %"), (3 / 87720, "0.0034 %"), (3e-7, "0.00003 %")],
)
def test_shares(value: float, text: str) -> None:
    assert share(value) == text
