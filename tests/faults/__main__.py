"""``python -m tests.faults [options of pytest]``: the experiments in full size, and the verdict on each.

Results go to results/ and from there into docs/reliability.md, or to the folder FAIRLEAD_RESULTS. With
options like ``-k E42`` only some run; the table then shows the stored results of the others. Exits with
1 if one is broken, now or as stored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import promises, results


def main(options: Sequence[str]) -> int:
    """Run, print the table, and give the exit code."""
    os.environ.setdefault("FAIRLEAD_FAULTS", "full")
    folder = os.environ.setdefault("FAIRLEAD_RESULTS", str(results.RESULTS_FOLDER))
    from tests.faults.support.verdicts import BROKEN, Witness, summary, table

    witness = Witness()
    patience_s = 3600.0 + float(os.environ.get("FAIRLEAD_SOAK_S", "0"))  # for one test
    code = pytest.main(
        ["-s", "-o", f"faulthandler_timeout={patience_s:g}", "tests/faults", *options], plugins=[witness]
    )
    lines = list(table(witness, results.read(Path(folder))))
    print("\n".join(["", *lines, summary(lines)]), flush=True)
    if is_kept(folder):
        promises.main()
    return 1 if code or any(f"  {BROKEN}" in line for line in lines) else 0


def is_kept(folder: str) -> bool:
    """Return whether the pages are made from *folder*, however its path is spelled."""
    return Path(folder).resolve() == results.RESULTS_FOLDER.resolve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
