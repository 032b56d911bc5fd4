"""``python -m tests.security [options of pytest]``: every test that the checklist names, and the verdicts.

Ends with 0 where every control holds or has no part yet, with 1 where one is broken or was not shown. What is
kept of such a one is broken, too, or gone: docs/reliability.md has no figure of it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.security.checklist import CHECKLIST
from tests.security.figures import RESULTS, read_figures
from tests.security.verdicts import BROKEN, NOT_SHOWN, summary, table, withdrawn
from tools import promises, results


class Witness:
    """Keeps how each test ended: the worst of its setup, call and teardown."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome_before = self.outcomes.get(report.nodeid, "passed")
        if outcome_before == "passed":
            self.outcomes[report.nodeid] = report.outcome


def main(options: Sequence[str]) -> int:
    """Run, print the table, and give the exit code."""
    os.environ.setdefault("FAIRLEAD_SECURITY", "full")
    folder = Path(os.environ.setdefault(RESULTS, str(results.RESULTS_FOLDER)))
    named = dict.fromkeys(test for control in CHECKLIST for test in control.node_ids)
    files = {test for test in named if "::" not in test}
    rest = [test for test in named if test in files or test.partition("::")[0] not in files]
    witness, begun_s = Witness(), time.time()
    code = pytest.main(["-q", "-s", *options, "tests/security", *rest], plugins=[witness])
    lines = list(table(witness.outcomes, read_figures(folder, int(begun_s))))
    print("\n".join(["", *lines, summary(witness.outcomes)]), flush=True)
    results.amend(folder, lambda lines: withdrawn(lines, witness.outcomes))
    missing = promises.missing_counters(results.read(folder))
    print("".join(f"{line}\n" for line in missing), end="", flush=True)
    if folder == results.RESULTS_FOLDER:
        promises.main()
    is_bad = any(word in line for line in lines for word in (BROKEN, NOT_SHOWN))
    return 1 if code or is_bad or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
