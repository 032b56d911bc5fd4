"""How each experiment of the catalogue did: a line of words for people, from a run and from what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.faults.catalogue import CATALOGUE, Experiment
from tools.figures import worst
from tools.results import Line, base

BROKEN = "BROKEN"
GOOD = ("holds", "violation seen")


@dataclass
class Witness:
    """A plugin of pytest that keeps how each test ended, and why it was skipped."""

    outcomes: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.outcomes.get(report.nodeid, "passed") == "passed":  # the worst of setup, call and teardown
            self.outcomes[report.nodeid] = report.outcome
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped[report.nodeid] = reason.removeprefix("Skipped: ")

    def of(self, files: Sequence[str]) -> dict[str, str]:
        """How the tests of *files* ended, by the id of the test."""
        paths = {f"tests/faults/{name}" for name in files}
        return {test: how for test, how in self.outcomes.items() if test.partition("::")[0] in paths}


def table(witness: Witness, lines: Sequence[Line]) -> Iterator[str]:
    """One line an experiment: id, what, n, verdict, figures or why there are none."""
    for experiment in CATALOGUE:
        ours = [line for line in lines if base(line["id"]) == experiment.id]
        n = sum(line.get("n") or 0 for line in ours if "ablation" not in line)
        summary_line = f"{_verdict(experiment, witness, ours)}  {_figures(ours)}".rstrip()
        yield f"{experiment.id}  {experiment.what:<26} {n or '-':>9}  {summary_line}"


def _verdict(experiment: Experiment, witness: Witness, ours: Sequence[Line]) -> str:
    if not experiment.files:
        return f"not run: {experiment.absent}"
    ran = witness.of(experiment.files)
    how = Counter(ran.values())
    bad = [f"{line['test']}: {'; '.join(line['broken'])}" for line in ours if line["verdict"] not in GOOD]
    failed = [test.rpartition("::")[2] for test, outcome in ran.items() if outcome == "failed"]
    if failed or bad:
        return f"{BROKEN}: {' | '.join(bad or failed)}"
    if not ran:
        return f"not run this time; kept: {_kept_verdict(ours)}"
    reasons = "; ".join(sorted({witness.skipped[test] for test in ran if test in witness.skipped}))
    if not how["passed"]:
        return f"not run: {reasons}; kept: {_kept_verdict(ours)}"
    return "holds" + (f" ({how['skipped']} of {how.total()} tests not run: {reasons})" if reasons else "")


def _kept_verdict(ours: Sequence[Line]) -> str:
    if not ours:
        return "nothing"
    commits = sorted({line["commit"] for line in ours})
    return f"holds at {', '.join(commits)} ({', '.join(sorted({line['size'] for line in ours}))})"


def _figures(ours: Sequence[Line]) -> str:
    return ", ".join(worst([line for line in ours if "ablation" not in line]))


def summary(lines: Sequence[str]) -> str:
    """The last line: how many of each."""
    broken = sum(f"  {BROKEN}" in line for line in lines)
    holds_count = sum("  holds" in line for line in lines)
    return f"{holds_count} held, {broken} broken, {len(lines) - holds_count - broken} not run"
