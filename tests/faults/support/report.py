"""One JSON line per experiment: what was done, what the ledgers say, and whether it holds.

The line goes to stdout; a full run (FAIRLEAD_FAULTS=full) also adds it to results/<id>.json.
"""

from __future__ import annotations

import json
import math
import os
import platform
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.support.nursery import ROOT

FULL = os.environ.get("FAIRLEAD_FAULTS", "smoke") == "full"
RESULTS = ROOT / "results"


def sized(smoke: Any, full: Any) -> Any:
    """The number for this run."""
    return full if FULL else smoke


def quantiles(values: Sequence[float], scale: float = 1.0, digits: int = 3) -> dict[str, float]:
    """p50, p99 and max (nearest rank), each times *scale*; nothing for no values."""
    if not values:
        return {}
    ranked = sorted(values)

    def at(share: float) -> float:
        return round(ranked[max(0, math.ceil(share * len(ranked)) - 1)] * scale, digits)

    return {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


@dataclass
class Figures:
    """An experiment on its way: its chance, its counters, and what did not hold."""

    id: str
    ablation: str | None = None
    seed: int = field(default_factory=lambda: int(os.environ.get("FAIRLEAD_SEED") or secrets.randbits(32)))
    counters: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = Random(self.seed)

    def note(self, **counters: Any) -> None:
        """Add to the line."""
        self.counters |= counters

    def holds(self, true: bool, what: str) -> None:
        """Note an invariant that does not hold."""
        if not true:
            self.broken.append(what)

    def zero(self, **counters: int) -> None:
        """Add counters that must be 0."""
        self.note(**counters)
        for name, count in counters.items():
            self.holds(count == 0, f"{name} = {count}")

    @property
    def line(self) -> Mapping[str, Any]:
        """As it is printed."""
        seen = "violation seen" if self.broken else "no violation seen"
        verdict = seen if self.ablation else "fails" if self.broken else "holds"
        told: dict[str, Any] = (
            {"id": self.id, "ablation": self.ablation} if self.ablation else {"id": self.id}
        )
        told |= {"size": "full" if FULL else "smoke", "commit": _commit(), "seed": self.seed}
        told |= {"versions": _versions()} | self.counters
        n = self.counters.get("n")
        if n and not self.ablation:  # what was 0 is below this, at 95 %
            told["3/n"] = round(3 / n, 6)
        return told | {"verdict": verdict, "broken": self.broken}

    def conclude(self) -> None:
        """Print, and fail unless it holds (for an ablation: unless a violation was seen)."""
        line = json.dumps(self.line)
        print(f"\n{line}", flush=True)
        if FULL:
            RESULTS.mkdir(exist_ok=True)
            with (RESULTS / f"{self.id}.json").open("a") as file:
                file.write(line + "\n")
        if self.ablation:
            assert self.broken, f"without its safeguard the check must fail: {line}"
        else:
            assert not self.broken, line


@cache
def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


@cache
def _versions() -> dict[str, str]:
    import aiohttp
    import asyncpg

    from fairlead import __version__

    return {
        "fairlead": __version__,
        "python": platform.python_version(),
        "aiohttp": aiohttp.__version__,
        "asyncpg": asyncpg.__version__,
    }
