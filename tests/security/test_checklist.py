"""The checklist is whole: every id has a row, what it names exists, and every test here is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.support.report import Figures
from tests.lint.tree import ROOT
from tests.security.checklist import CHECKLIST, Control, page
from tests.security.figures import RESULTS, read_figures, tell
from tests.security.verdicts import functions, summary, table, verdict, withdrawn
from tools import results

HERE = Path(__file__).parent


def lost(tests: tuple[str, ...]) -> list[str]:
    """Those of *tests* that do not exist."""
    named = [(test, *test.partition("::")[::2]) for test in tests]
    return [test for test, file, name in named if not (name in functions(file) if name else functions(file))]


def test_every_id_has_its_row() -> None:
    assert [control.id for control in CHECKLIST] == [f"S{number:02}" for number in range(1, 37)]


def test_every_control_is_shown_or_says_what_is_not_there() -> None:
    assert [control.id for control in CHECKLIST if not control.tests and not control.absent] == []


def test_every_test_that_is_named_exists() -> None:
    assert [test for control in CHECKLIST for test in lost(control.node_ids)] == []


def test_every_test_of_this_folder_is_named() -> None:
    named = {test.partition("::")[0] for control in CHECKLIST for test in control.node_ids}
    ours = {path.relative_to(ROOT).as_posix() for path in HERE.glob("test_S*.py")}
    assert ours <= named


def test_a_file_stands_in_the_row_whose_id_it_bears() -> None:
    for control in CHECKLIST:
        for test in control.tests:
            name = Path(test.partition("::")[0]).name
            if name.startswith("test_S"):
                assert name.startswith(f"test_{control.id}_"), f"{control.id} names {test}"


def test_the_page_is_what_the_table_says() -> None:
    page_text = (ROOT / "docs/security.md").read_text("utf-8")
    assert page_text == page().rstrip("\n") + "\n", (
        "run: python -m tests.security.checklist > docs/security.md"
    )


def test_missing_test_is_found() -> None:
    assert (
        lost(
            (
                "tests/security/test_checklist.py::test_missing_test_is_found",
                "tests/security/test_checklist.py",
            )
        )
        == []
    )
    assert lost(("tests/gone.py", "tests/security/test_checklist.py::test_gone")) == [
        "tests/gone.py",
        "tests/security/test_checklist.py::test_gone",
    ]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({"tests/a.py::test_x": "passed", "tests/a.py::test_y[1]": "passed"}, "holds (2 tests)"),
        ({"tests/a.py::test_x": "passed", "tests/a.py::test_y[1]": "failed"}, "BROKEN: 1 of 2 tests failed"),
        (
            {"tests/a.py::test_y[1]": "skipped", "tests/a.py::test_y[2]": "passed"},
            "holds (1 test, 1 skipped)",
        ),
        (
            {"tests/a.py::test_x": "passed", "tests/a.py::test_y[1]": "skipped"},
            "NOT SHOWN: tests/a.py::test_y",
        ),
        ({"tests/a.py::test_y[1]": "skipped"}, "NOT SHOWN: every test was skipped"),
        ({"tests/b.py::test_x": "passed"}, "NOT SHOWN: no test was run"),
    ],
)
def test_a_verdict_rests_on_the_tests_that_are_named(outcomes: dict[str, str], expected: str) -> None:
    assert verdict(Control("S00", "", (), ("a.py",)), outcomes) == expected


def test_a_control_whose_slow_tests_were_left_out_is_not_shown() -> None:
    file = "tests/security/test_S13_canary_run.py"
    control = Control("S13", "", (), ("security/test_S13_canary_run.py", "a.py::test_x", "b.py::test_x"))
    outcomes = {f"{file}::{name}": "passed" for name in functions(file)}
    both = outcomes | {"tests/a.py::test_x": "passed", "tests/b.py::test_x[1]": "passed"}
    assert verdict(control, both).startswith("holds")
    assert verdict(control, outcomes | {"tests/a.py::test_x": "passed"}) == "NOT SHOWN: tests/b.py::test_x"
    left_out = f"{file}::test_no_secret_comes_out"
    del both[left_out]
    assert verdict(control, both) == f"NOT SHOWN: {left_out}"


@pytest.mark.parametrize("how", ["failed", "skipped"])
def test_no_figure_outlives_a_run_in_which_its_control_does_not_hold(how: str) -> None:
    lines_kept = [
        {"id": id, "test": test, "foreign_rows": 0, "n": 9, "verdict": "holds"}
        for id in ("S27", "S27-pool")
        for test in ("x", "y")
    ]
    others = [{"id": "S01", "n": 1}, {"id": "E33", "n": 1}]
    node = "tests/sql/test_tenants.py::test_the_audit_trail_only_grows_whoever_asks"
    remaining = withdrawn([*others, *lines_kept], {node: how})
    assert remaining[:2] == others
    if how == "failed":
        assert {line["verdict"] for line in remaining[2:]} == {"broken"}
        assert [line["broken"] for line in remaining[2:]] == [["BROKEN: 1 of 1 test failed"]] * 4
    else:
        assert remaining[2:] == []


def test_withdrawn_verdict_is_removed_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RESULTS, str(tmp_path))
    for control in ("S01", "S13", "S28"):
        tell(control, n=3)
    hosts, run = "tests/security/test_S01_hosts.py::test_x", "tests/security/test_S13_search.py::test_x"
    results.amend(tmp_path, lambda lines: withdrawn(lines, {hosts: "failed", run: "skipped"}))
    assert [(line["id"], line.get("verdict")) for line in results.read(tmp_path)] == [
        ("S01", "broken"),
        ("S28", None),
    ]


def test_a_run_that_left_a_control_alone_says_nothing_of_its_figures() -> None:
    lines_kept = [{"id": "S27", "n": 1}]
    assert withdrawn(lines_kept, {"tests/security/test_S01_hosts.py::test_x": "failed"}) == lines_kept


def test_a_function_that_is_named_stands_for_its_parameters_alone() -> None:
    control = Control("S00", "", (), ("a.py::test_x",))
    outcomes = {"tests/a.py::test_x[1]": "passed", "tests/a.py::test_xy": "failed"}
    assert verdict(control, outcomes) == "holds (1 test)"


def test_absent_control_is_reported_as_absent() -> None:
    assert verdict(Control("S00", "", (), absent="no part"), {}) == "absent: no part"
    in_part = Control("S00", "", (), ("a.py",), absent="the rest")
    assert verdict(in_part, {"tests/a.py::test_x": "passed"}) == "holds (1 test); absent: the rest"
    complete_control, part = (
        next(control for control in CHECKLIST if control.id == id) for id in ("S01", "S32")
    )
    named = [node for control in (complete_control, part) for node in control.node_ids]
    tests = {
        node if "::" in node else f"{node}::{name}" for node in named for name in functions(node) or [""]
    }
    assert summary(dict.fromkeys(tests, "passed")).startswith("2 hold (1 in part), ")


def test_a_figure_is_a_line_and_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESULTS, str(tmp_path / "results"))
    tell("S13", n=3, canary_found=0)
    assert json.loads(capsys.readouterr().out) == {"id": "S13", "n": 3, "canary_found": 0}
    assert read_figures(tmp_path / "results") == {"S13": {"n": 3, "canary_found": 0}}


def test_the_table_tells_the_figures_of_each_part_of_a_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESULTS, str(tmp_path))
    tell("S27", n=35)
    figures = Figures("S27-pool", seed=7)
    figures.zero(foreign_rows=0)
    figures.tell()
    lines = list(table({}, read_figures(tmp_path)))
    [s27] = [line for line in lines if line.startswith("S27")]
    title = next(control.what for control in CHECKLIST if control.id == "S27")
    assert s27.startswith(f"S27  {title[:50]}"), "a verdict is of something"
    assert s27.endswith("  NOT SHOWN: no test was run")
    next_index = lines.index(s27)
    assert lines[next_index + 1 : next_index + 3] == ["     n 35", "     pool: foreign_rows 0"]
