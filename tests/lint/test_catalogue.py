"""The catalogue of experiments is whole: each has its tests or a reason, each test its experiment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tests.faults.catalogue import CATALOGUE, Experiment
from tests.lint.tree import ROOT
from tests.security.checklist import CHECKLIST
from tools import results

FOLDER = ROOT / "tests/faults"
PROMISES = {f"P{number}" for number in range(1, 16)}
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def by_file() -> dict[str, list[str]]:
    """Return the test functions of each file of experiments."""
    files = sorted(FOLDER.glob("test_*.py"))
    return {path.name: _TEST.findall(path.read_text("utf-8")) for path in files}


def gaps(catalogue: Iterable[Experiment], tests: dict[str, list[str]]) -> Iterator[str]:
    """Yield tests that the catalogue names and that do not exist, and tests that it does not name."""
    named = set()
    for experiment in catalogue:
        if bool(experiment.files) == bool(experiment.absent):
            yield f"{experiment.id} has either files or a reason why it has none"
        for file in experiment.files:
            ours = [test for test in tests.get(file, ()) if test.startswith(f"test_{experiment.id}_")]
            named |= set(ours)
            if not ours:
                yield f"{experiment.id}: {file} has no test_{experiment.id}_..."
    everything = {test for of_file in tests.values() for test in of_file if re.match(r"test_E\d", test)}
    yield from (f"{test} is in no file that its experiment names" for test in sorted(everything - named))


def test_each_experiment_has_a_row() -> None:
    assert [experiment.id for experiment in CATALOGUE] == [f"E{number:02}" for number in range(1, 53)]


def test_each_row_has_its_tests_and_each_test_its_row() -> None:
    assert list(gaps(CATALOGUE, by_file())) == []


def test_rows_name_promises_that_there_are() -> None:
    assert {promise for experiment in CATALOGUE for promise in experiment.promises} <= PROMISES
    assert all(experiment.promises and experiment.limit for experiment in CATALOGUE)


def test_stored_results_name_existing_tests() -> None:
    files = {ROOT / node.partition("::")[0] for check in CHECKLIST for node in check.node_ids}
    sources = [path.read_text("utf-8") for path in files if path.is_file()]
    existing = {test for of_file in by_file().values() for test in of_file}
    existing |= {test for source in sources for test in _TEST.findall(source)}
    lines = [line for line in results.read() if "test" in line and line["id"] != "simulation"]  # is no test
    assert [line for line in lines if line["test"].partition("[")[0] not in existing] == []


def test_gaps_are_found() -> None:
    row = Experiment("E01", "a", ["P1"], "0", ["test_e01.py"])
    assert list(gaps([row], {"test_e01.py": ["test_E01_a"]})) == []
    assert len(list(gaps([row], {"test_e01.py": ["test_E02_a"]}))) == 2
    assert len(list(gaps([Experiment("E01", "a", ["P1"], "0")], {}))) == 1
