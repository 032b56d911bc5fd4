"""The published results of experiments: results/<id>.json, one JSON line for each test.

A line replaces the earlier one of the same test, but a smoke run never replaces a full run.
FAIRLEAD_RESULTS names the folder to write to; without it nothing is written. docs/reliability.md and
docs/figures.md are generated from the folder in git (tools/promises.py).
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
RESULTS_FOLDER = ROOT / "results"
KEY = ("id", "test", "what", "ablation", "on")
"""The key of a line: experiment, test, part of the test, removed safeguard, server."""
AROUND = ("commit", "date", "versions", "machine")
"""The fields of `circumstances`."""

Line = Mapping[str, Any]


def keep(line: Line) -> None:
    """Write *line* to the folder FAIRLEAD_RESULTS, in place of the earlier one."""
    _put(line, line)


def drop(line: Line) -> None:
    """Delete the stored line with the key of *line*. A smoke run deletes nothing of a full run."""
    _put(line, None)


def _put(line: Line, replacement: Line | None) -> None:
    """Store *replacement*, or nothing, in the place of *line*."""
    folder_name = os.environ.get("FAIRLEAD_RESULTS")
    if not folder_name:
        return
    folder = Path(folder_name)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        path = folder / f"{base(line['id'])}.json"
        lines: dict[tuple[str, ...], Line] = {
            _key(previous_line): previous_line for previous_line in _lines(path)
        }
        previous = lines.pop(_key(line), None)
        if previous is not None and previous.get("size") == "full" and line.get("size") != "full":
            return
        if replacement is not None:
            lines[_key(line)] = replacement
        if not lines:
            path.unlink(missing_ok=True)
            return
        _write(path, [lines[key] for key in sorted(lines)])


def amend(folder: Path, change: Callable[[Sequence[Line]], Sequence[Line]]) -> None:
    """Replace the lines of each file in *folder* by the result of *change*."""
    with _locked(folder):
        for path in sorted(folder.glob("*.json")):
            previous = list(_lines(path))
            changed = list(change(previous))
            if changed != previous:
                _write(path, changed)


def read(folder: Path = RESULTS_FOLDER) -> list[dict[str, Any]]:
    """Return every stored line."""
    return [line for path in sorted(folder.glob("*.json")) for line in _lines(path)]


def base(name: str) -> str:
    """Return the experiment of a part of it: ``E38`` for ``E38-queues``."""
    return name.replace("_", "-").partition("-")[0]


def proofs(lines: Iterable[Line], name: str) -> list[Line]:
    """Return the lines of experiment *name* in full size, without those with a safeguard removed."""
    return [
        line
        for line in lines
        if base(line["id"]) == name and line.get("size", "full") == "full" and "ablation" not in line
    ]


def circumstances() -> dict[str, Any]:
    """Return commit, date, versions and machine of this run."""
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
def _locked(folder: Path) -> Iterator[None]:
    """Lock *folder* against other writers for the block."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
