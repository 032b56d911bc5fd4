"""What whole runs found, as it is kept and published: results/simulation.json (tools/results.py).

Nothing is written where FAIRLEAD_RESULTS names no folder; `make simulate` and `make simulate-ablations` name
the one that docs/figures.md is made from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tests.faults.__main__ import is_kept
from tests.simulation.ablations import AblationFinding
from tools import promises, results

COMPLETE_RUN = 200
"""Seeds of a run that is published, at least."""


def seeds(run: Sequence[int], *, broken: int, steps: int, seconds: float) -> None:
    """A run of healthy seeds."""
    if len(run) >= COMPLETE_RUN:
        most = {} if broken else {"3/n": 3 / len(run)}
        figures = {"from": run[0], "steps": steps, "broken": broken, **most}
        _keep("seeds", len(run), figures, seconds, holds=broken == 0)


def same(seeds: Sequence[int], *, interpreters: int, differ: int, seconds: float) -> None:
    """Seeds that between them have every fault, run again in interpreters of their own."""
    figures = {"seeds": [*seeds], "interpreters": interpreters, "differ": differ}
    _keep("same", len(seeds), figures, seconds, holds=differ == 0)


def ablations(findings: Mapping[str, AblationFinding | None], count: int, *, seconds: float) -> None:
    """What found each safeguard that is missing, within *count* seeds."""
    caught = [
        {"lacks": name, "seed": finding.seed, "breaks": finding.broken.invariant, "why": finding.broken.why}
        for name, finding in findings.items()
        if finding is not None
    ]
    if count >= COMPLETE_RUN:
        figures = {"seeds": count, "caught": len(caught), "found": caught}
        _keep("ablations", len(findings), figures, seconds, holds=len(caught) == len(findings))


def _keep(test: str, n: int, figures: Mapping[str, object], seconds: float, *, holds: bool) -> None:
    if not (folder := os.environ.get("FAIRLEAD_RESULTS")):
        return
    record = {"verdict": "holds" if holds else "broken", "seconds": round(seconds, 1)}
    line = {"id": "simulation", "test": test, "size": "full", "n": n, **figures, **record}
    results.keep({**line, **results.circumstances()})
    if is_kept(folder):
        promises.main()
