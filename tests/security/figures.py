"""Figures that a security test tells: one JSON line each, and a file where results are kept."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from tools import results

RESULTS = "FAIRLEAD_RESULTS"
"""The folder for results; none is written without it."""


def tell(control: str, **figures: int | float | str) -> None:
    """Print *figures* of *control* (S13, say) as one line of JSON, and keep them in RESULTS/S13.json."""
    line = {"id": control, **figures}
    print(f"\n{json.dumps(line)}", flush=True)
    results.keep({**line, "size": "full", **results.circumstances()})


def read_figures(folder: Path, since_s: float = 0) -> dict[str, dict[str, int | float]]:
    """The numbers kept in *folder* at the Unix time *since_s* or later, by control or part of one."""
    lines_by_id = {}
    for line in results.read(folder):
        if line["id"].startswith("S") and datetime.fromisoformat(line["date"]).timestamp() >= since_s:
            lines_by_id[line["id"]] = {
                name: value
                for name, value in line.items()
                if isinstance(value, int | float) and name not in ("seed", "3/n", "stood_still_s")
            }
    return lines_by_id
