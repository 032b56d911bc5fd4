"""Two work trees side by side: ``python -m bench compare TREE NAME`` measures TREE and this one in turns.

TREE is the folder of another work tree, or a git revision, which is checked out for as long as this takes.
Each side is a process of its own on servers of its own. Both measure a short slice in turns, so that a machine
that slows down slows both. TREE runs its own benchmark of this name, which fits its own sources, or this
tree's if it has none. A ratio is the median over pairs of neighbouring slices; beside each figure stand its
quartiles.

    NAME.rate    operations a second: this tree's, over those of TREE
    NAME.cpu     CPU milliseconds of the process for one operation
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.report import Row, quartiles
from bench.slices import SLICES

ROOT = Path(__file__).parent.parent
PAIRS = 6
"""Pairs of slices a round."""


class TreeUnknownError(ValueError):
    """The argument is neither a work tree nor a revision."""


async def run(*, rounds: int, quick: bool, tree: str, name: str) -> list[Row]:
    """Return both rows. Raise TreeUnknownError, or ValueError for a *name* that has no slices."""
    if name not in SLICES:
        raise ValueError(f"{name!r} is not measured in slices; these are: {', '.join(SLICES)}")
    connections, seconds, pairs = (20, 0.1, rounds) if quick else (500, 0.5, rounds * PAIRS)
    figures: list[tuple[dict[str, float], dict[str, float]]] = []
    with (
        work_tree(tree) as other,
        _side(other, name, connections) as theirs,
        _side(ROOT, name, connections) as ours,
    ):
        for number in range(pairs + 2):
            order = (ours, theirs)[:: -1 if number % 2 else 1]
            slices = {side: side.measure(seconds) for side in order}
            figures.append((slices[ours], slices[theirs]))
    rated = figures[2:]  # the first two warm up
    return [
        _row(f"{name}.rate", "operations/s", [(mine["per_s"], other["per_s"]) for mine, other in rated]),
        _row(f"{name}.cpu", "ms", [(mine["cpu_ms"], other["cpu_ms"]) for mine, other in rated]),
    ]


def _row(bench: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Row:
    ours, theirs = [mine for mine, _ in pairs], [other for _, other in pairs]
    ratios = [mine / other for mine, other in pairs]
    more = {
        "ours_quartiles": quartiles(ours),
        "tree_quartiles": quartiles(theirs),
        "ratio_of_pairs": round(statistics.median(ratios), 3),
        "ratio_quartiles": quartiles(ratios),
    }
    medians = statistics.median(ours), statistics.median(theirs)
    return Row(bench, medians[0], unit, len(pairs), limit=medians[1], more=more)


@contextmanager
def work_tree(tree: str) -> Iterator[Path]:
    """Yield the folder of *tree*; a revision is checked out into a temporary one."""
    if (Path(tree) / "src" / "fairlead").is_dir():
        yield Path(tree).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="fl-bench-") as top:
        folder = Path(top) / "tree"
        added = _git("worktree", "add", "--quiet", "--detach", str(folder), tree)
        if added.returncode:
            raise TreeUnknownError(f"{tree!r} is neither a work tree nor a revision: {added.stderr.strip()}")
        try:
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


class _Side:
    """One work tree that measures slices."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(self, seconds: float) -> dict[str, float]:
        """Return the figures of one slice."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return self.line()

    def line(self) -> dict[str, float]:
        """Return the next line of the process."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a side ended before it was measured; its output is above")
        figures: dict[str, float] = json.loads(line)
        return figures


def _measures(tree: Path, name: str) -> bool:
    """Return whether the benchmark of *tree* has slices of this *name*."""
    slices = tree / "bench" / "slices.py"
    return slices.is_file() and f'"{name}": ' in slices.read_text(encoding="utf-8")


@contextmanager
def _side(tree: Path, name: str, connections: int) -> Iterator[_Side]:
    """Yield the sources of *tree* under its own benchmark, or this tree's, ready to be measured."""
    bench = tree if _measures(tree, name) else ROOT
    with subprocess.Popen(
        [sys.executable, "-m", "bench.slices", name, str(connections)],
        cwd=bench,
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{bench}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        side = _Side(process)
        side.line()
        yield side
        assert process.stdin is not None
        process.stdin.close()
