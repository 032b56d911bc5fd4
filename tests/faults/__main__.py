"""``python -m tests.faults [options of pytest]``: the experiments in full size, and the verdict on each.

What they find goes to results/ and from there into README, or where FAIRLEAD_RESULTS says. With options like
``-k E42`` some run; the table then says of the others what is kept of them. Ends with 1 where one is broken,
now or as it is kept.
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
    folder = os.environ.setdefault("FAIRLEAD_RESULTS", str(results.KEPT))
    from tests.faults.support.verdicts import BROKEN, Witness, summary, table

    witness = Witness()
    patience_s = 3600.0 + float(os.environ.get("FAIRLEAD_SOAK_S", "0"))  # for one test
    code = pytest.main(
        ["-s", "-o", f"faulthandler_timeout={patience_s:g}", "tests/faults", *options], plugins=[witness]
    )
    told = list(table(witness, results.read(Path(folder))))
    print("\n".join(["", *told, summary(told)]), flush=True)
    if is_kept(folder):
        promises.main()
    return 1 if code or any(f"  {BROKEN}" in line for line in told) else 0


def is_kept(folder: str) -> bool:
    """Whether README is made from *folder*, however it is written."""
    return Path(folder).resolve() == results.KEPT.resolve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
