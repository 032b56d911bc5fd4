"""Figures that a security test tells: one JSON line each, and a file where results are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

RESULTS = "FAIRLEAD_RESULTS"
"""The folder for results; none is written without it."""


def tell(control: str, **figures: int | float | str) -> None:
    """Print *figures* of *control* (S13, say) as one line of JSON, and keep them as RESULTS/S13.json."""
    line = json.dumps({"id": control, **figures})
    print(f"\n{line}", flush=True)
    folder = os.environ.get(RESULTS)
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{control}.json").write_text(line + "\n", encoding="utf-8")


def told(folder: Path, since_s: float = 0) -> dict[str, dict[str, int | float | str]]:
    """What was kept in *folder* at the Unix time *since_s* or later, by control."""
    files = [file for file in sorted(folder.glob("S[0-9][0-9].json")) if file.stat().st_mtime >= since_s]
    return {file.stem: json.loads(file.read_text("utf-8")) for file in files}
