"""What experiments found, as it is kept and published: results/<id>.json, one JSON line a test.

A line takes the place of the earlier one of the same test; one of a smoke run never that of a full run.
FAIRLEAD_RESULTS names the folder to write to; without it nothing is written. docs/reliability.md and
docs/figures.md are made from the folder that is kept in git (tools/promises.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.report import commit
from fairlead.adapters.embedded.wheels import postgres_wheel, valkey_wheel

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results"
KEY = ("id", "test", "what", "ablation", "on")
"""What tells lines apart: an experiment, its test and which part of it, a safeguard it lacks, its server."""
AROUND = ("commit", "date", "versions", "machine")
"""What `circumstances` tells."""

Line = Mapping[str, Any]


def keep(line: Line) -> None:
    """Write *line* where FAIRLEAD_RESULTS says, in place of the earlier one."""
    _put(line, line)


def drop(line: Line) -> None:
    """Take away what is kept in *line*'s place; of a smoke run nothing that a full run left."""
    _put(line, None)


def _put(line: Line, kept: Line | None) -> None:
    """*kept*, or nothing, in the place of *line*."""
    named = os.environ.get("FAIRLEAD_RESULTS")
    if not named:
        return
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        path = folder / f"{base(line['id'])}.json"
        lines: dict[tuple[str, ...], Line] = {_key(each): each for each in _lines(path)}
        before = lines.pop(_key(line), None)
        if before is not None and before.get("size") == "full" and line.get("size") != "full":
            return
        if kept is not None:
            lines[_key(line)] = kept
        if not lines:
            path.unlink(missing_ok=True)
            return
        _write(path, [lines[key] for key in sorted(lines)])


def amend(folder: Path, change: Callable[[Sequence[Line]], Sequence[Line]]) -> None:
    """Put in the place of all lines in *folder* what *change* makes of them, file by file."""
    with _alone(folder):
        for path in sorted(folder.glob("*.json")):
            before = list(_lines(path))
            after = list(change(before))
            if after != before:
                _write(path, after)


def read(folder: Path = KEPT) -> list[dict[str, Any]]:
    """Every line that is kept."""
    return [line for path in sorted(folder.glob("*.json")) for line in _lines(path)]


def base(name: str) -> str:
    """The experiment of a part of one: ``E38`` of ``E38-queues``."""
    return name.replace("_", "-").partition("-")[0]


def proofs(lines: Iterable[Line], name: str) -> list[Line]:
    """The lines of experiment *name* in full size, without those in which a safeguard is missing."""
    return [
        line
        for line in lines
        if base(line["id"]) == name and line.get("size", "full") == "full" and "ablation" not in line
    ]


def circumstances() -> dict[str, Any]:
    """Where and on what a line was found."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "machine": {
            "system": platform.system(),
            "cores": os.cpu_count(),
            "memory_gib": round(memory_bytes / (1 << 30)),
        },
    }


@cache
def _versions() -> dict[str, str]:
    elsewhere = "FAIRLEAD_TEST_DATABASE_URL" in os.environ
    return {
        "python": platform.python_version(),
        "postgresql": "as FAIRLEAD_TEST_DATABASE_URL" if elsewhere else postgres_wheel().version("postgres"),
        "valkey": valkey_wheel().version("valkey-server"),
        "aiohttp": metadata.version("aiohttp"),
        "asyncpg": metadata.version("asyncpg"),
    }


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def _write(path: Path, lines: Iterable[Line]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    fresh.replace(path)


def _key(line: Line) -> tuple[str, ...]:
    return tuple(str(line.get(name, "")) for name in KEY)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else writes in *folder* for as long as the block lasts."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
