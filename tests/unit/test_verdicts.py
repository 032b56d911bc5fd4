"""The table of verdicts says what ran, what is kept, what was not run, and above all what is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.__main__ import is_kept
from tests.faults.support import report, verdicts
from tests.faults.support.verdicts import Witness
from tools import results

E01, E03 = ("tests/faults/test_e01_kill_storm.py::test_E01_x", "tests/faults/test_e03_zombie.py::test_E03_x")
LINE = {"id": "E01", "test": "test_E01_x", "commit": "abc", "size": "full", "verdict": "holds", "broken": []}


def row(witness: Witness, *lines: dict[str, object], id: str = "E01") -> str:
    return next(line for line in verdicts.table(witness, lines) if line.startswith(id))


def test_experiment_that_ran_has_its_figures() -> None:
    line = LINE | {"n": 7, "lost": 0, "zeros": ["lost"], "recovery_s": {"p50": 1, "p99": 2.5, "max": 3}}
    rendered = row(Witness({E01: "passed"}), line, line | {"recovery_s": {"p99": 1.5}})
    assert (
        " ".join(rendered.split("storm")[1].split())
        == "14 holds lost 0 (3/n = 21 % of 14), recovery p99 2.5 s"
    )


def test_experiment_that_did_not_run_has_its_stored_verdict() -> None:
    assert "not run this time; kept: holds at abc (full)" in row(Witness(), LINE)
    assert "not run this time; kept: nothing" in row(Witness())
    assert "not run: not built yet: mail" in row(Witness(), id="E49")


def test_a_skipped_one_says_why() -> None:
    assert "not run: no compiler; kept: nothing" in row(Witness({E01: "skipped"}, {E01: "no compiler"}))
    some = Witness({E01: "passed", f"{E01}[2]": "skipped"}, {f"{E01}[2]": "no compiler"})
    assert "holds (1 of 2 tests not run: no compiler)" in row(some)


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        ("failed", LINE),
        ("passed", LINE | {"verdict": "broken", "broken": ["lost = 1"]}),
        ("passed", LINE | {"ablation": "x", "verdict": "no violation seen"}),
    ],
)
def test_failed_experiment_is_broken(outcome: str, line: dict[str, object]) -> None:
    table_lines = list(verdicts.table(Witness({E01: outcome, E03: "passed"}), [line]))
    assert "  BROKEN: test_E01_x" in table_lines[0]
    assert verdicts.summary(table_lines) == "1 held, 1 broken, 50 not run"


def test_the_line_of_a_test_that_ends_before_it_concludes(capsys: pytest.CaptureFixture[str]) -> None:
    figures = report.Figures("E01", ablation="no_rescue", sees="still_running")
    figures.note(kills=3)
    report.end_of_test("TimeoutError: late")
    line = json.loads(capsys.readouterr().out)
    assert (line["kills"], line["verdict"], line["broken"]) == (3, "broken", ["TimeoutError: late"])


def test_a_test_that_is_skipped_half_way_tells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    report.Figures("E01")
    report.end_of_test(None)
    report.end_of_test("of another test")
    assert capsys.readouterr().out == ""


def test_the_most_it_may_be_stands_where_all_is_0() -> None:
    zero, more, none = report.Figures("E50"), report.Figures("E50"), report.Figures("E50")
    for figures in (zero, more, none):
        figures.note(n=300)
    zero.zero(lost=0)
    more.zero(lost=0, doubled=1)
    assert zero.line["3/n"] == 0.01
    assert "3/n" not in more.line
    assert "3/n" not in none.line
    report.end_of_test(None)


@pytest.mark.parametrize(
    ("broken", "verdict"), [("lost = 3", "violation seen"), ("late", "no violation seen")]
)
def test_an_ablation_sees_what_it_names_and_nothing_else(broken: str, verdict: str) -> None:
    figures = report.Figures("E01", ablation="no_rescue", sees="lost =")
    figures.holds(False, broken)
    assert figures.verdict == verdict
    report.end_of_test(None)


@pytest.mark.parametrize("named", [{"ablation": "no_rescue"}, {"sees": "lost ="}])
def test_an_ablation_names_what_it_must_break(named: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="names what it must break"):
        report.Figures("E01", **named)


def test_readme_is_made_from_the_folder_however_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results.ROOT)
    assert is_kept("results")
    assert is_kept(str(results.ROOT / "tests" / ".." / "results"))
    assert not is_kept(str(Path("tests/results")))


@pytest.mark.parametrize(
    ("ablation", "seen_in", "attempts"), [(None, 1, 1), (None, 9, 1), ("x", 1, 1), ("x", 2, 2), ("x", 9, 3)]
)
async def test_an_ablation_is_tried_until_it_is_seen(
    tmp_path: Path, ablation: str | None, seen_in: int, attempts: int
) -> None:
    figures = report.Figures("E01", ablation, "too many" if ablation else "")
    folders: list[Path] = []

    async def attempt(folder: Path) -> None:
        assert folder.is_dir()
        folders.append(folder)
        figures.holds(len(folders) < seen_in, "too many")

    await report.with_retries(figures, attempt, tmp_path)
    assert len(set(folders)) == attempts
    assert figures.counters == ({"attempts": attempts} if ablation else {})
    report.end_of_test(None)
