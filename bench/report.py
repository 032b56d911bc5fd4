"""One row for each figure: ours, the limit, their ratio, the goal, and the commit."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_FIGURES = tuple(
    f":(exclude,top){path}" for path in ("results", "README.md", "docs/figures.md", "docs/reliability.md")
)
"""What a run itself writes does not change what it measures."""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of *n* interleaved runs. *goal* bounds ratios from below, or from above with *at_most*.

    A goal named ``ours`` bounds the figure itself. A goal without a measured ratio is missed.
    """

    bench: str
    ours: float
    unit: str
    n: int
    limit: float | None = None
    paired_ratio: float | None = None
    """The median over pairs of neighbouring slices, where they were run in turns: it is ``ratio_limit`` then."""
    peers: Mapping[str, float] = field(default_factory=dict)
    goal: Mapping[str, float] = field(default_factory=dict)
    aim: Mapping[str, float] = field(default_factory=dict)
    at_most: bool = False
    more: Mapping[str, object] = field(default_factory=dict)

    @property
    def ratios(self) -> dict[str, float]:
        """Ours over the best peer and over the limit, if there are any."""
        ratios = {}
        if self.peers:
            best = min if self.at_most else max
            ratios["ratio_best_peer"] = self.ours / best(self.peers.values())
        if self.limit:
            ratios["ratio_limit"] = self.paired_ratio or self.ours / self.limit
        return ratios

    @property
    def passed(self) -> bool:
        """Whether every goal is met."""
        measured = {"ours": self.ours, **self.ratios}
        if not self.goal.keys() <= measured.keys():
            return False
        pairs = ((measured[name], bound) for name, bound in self.goal.items())
        return all(value <= bound if self.at_most else value >= bound for value, bound in pairs)

    def as_dict(self) -> dict[str, object]:
        """Return the JSON object, without fields that do not apply."""
        fields: dict[str, object] = {"bench": self.bench, "ours": _round(self.ours), "unit": self.unit}
        if self.peers:
            fields["peers"] = {name: _round(value) for name, value in self.peers.items()}
        if self.limit is not None:
            fields["limit"] = _round(self.limit)
        fields |= {name: _round(value) for name, value in self.ratios.items()}
        if self.goal:
            fields |= {"goal": dict(self.goal), "pass": self.passed}
        if self.aim:
            fields["aim"] = dict(self.aim)
        return {**fields, **self.more, "n": self.n, "commit": commit()}


def print_rows(rows: Sequence[Row], *, as_json: bool) -> None:
    """Print JSON lines, or a table to read."""
    for row in rows:
        if as_json:
            print(json.dumps(row.as_dict()), flush=True)
            continue
        ratios = "  ".join(f"{name} {value:.2f}" for name, value in row.ratios.items())
        verdict = "" if not row.goal else ("met" if row.passed else "MISSED")
        print(f"{row.bench:<24}{row.ours:>12.1f} {row.unit:<14}{ratios:<28}{verdict}")


def quartiles(values: Sequence[float]) -> list[float]:
    """Return the lower quartile, the median and the upper quartile of *values*."""
    if len(values) < 2:
        return [_round(values[0])] * 3
    return [_round(value) for value in statistics.quantiles(values, n=4)]


def commit(folder: Path = Path(__file__).parent) -> str:
    """Return the commit that this process started with, and ``+`` if the tree differs in more than figures.

    The first call looks it up, so call it before the measured code is loaded. Later changes and commits may be
    what other processes of the same run have loaded.
    """
    try:
        name, is_changed = _first(folder)
        return name[:12] + ("+" if is_changed or _is_changed(folder, name) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@cache
def _first(folder: Path) -> tuple[str, bool]:
    name = _git(folder, "rev-parse", "HEAD")
    return name, _is_changed(folder, name)


def _is_changed(folder: Path, since: str) -> bool:
    """Return whether the tree now differs from a commit or has new files."""
    paths = ("--", ":/", *_FIGURES)
    new = ("ls-files", "--others", "--exclude-standard")
    return bool(_git(folder, "diff", "--name-only", since, *paths) or _git(folder, *new, *paths))


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def _round(value: float) -> float:
    return round(value, 3 if abs(value) < 100 else 1)
