"""The sink of jobs: one line for each run that began and each that had its effect, written at once.

It is the truth about jobs: handlers write it while they run, in whichever process, and no line is lost by
SIGKILL, since each is one append that is in the kernel when it returns.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Sink:
    """Appends to *path*."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, **fields: Any) -> None:
        """One line, with the monotonic time of this host."""
        os.write(
            self._file, json.dumps({"t": time.monotonic(), "pid": os.getpid(), **fields}).encode() + b"\n"
        )


@dataclass(slots=True)
class Run:
    """One run of the job that was enqueued as number *n*. *ended_s* None: it had no effect, or none yet."""

    n: int
    job_id: str
    lease: str
    pid: int
    began_s: float
    ended_s: float | None = None


class Runs:
    """What stands in the sink of *path*, in the order of its lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self.by_lease: dict[tuple[str, str], Run] = {}
        self.look()

    def look(self) -> Runs:
        """Read what has come since; these."""
        if not self._path.exists():
            return self
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        complete_lines = data[: data.rfind(b"\n") + 1]  # the last line may be on its way
        self._read_bytes += len(complete_lines)
        for line in map(json.loads, complete_lines.splitlines()):
            key = (line["job"], line["lease"])
            if line["ev"] == "began":
                assert key not in self.by_lease, f"one lease ran twice: {key}"
                self.by_lease[key] = Run(line["n"], line["job"], line["lease"], line["pid"], line["t"])
            else:
                self.by_lease[key].ended_s = line["t"]
        return self

    def __iter__(self) -> Iterable[Run]:
        return iter(self.by_lease.values())

    def __len__(self) -> int:
        return len(self.by_lease)

    @property
    def effects(self) -> set[int]:
        """Numbers that had their effect; the sink takes the first and knows the others by it."""
        return {run.n for run in self.by_lease.values() if run.ended_s is not None}

    def of_job(self, job_id: str) -> list[Run]:
        """The runs of one job, the newest last."""
        return [run for run in self.by_lease.values() if run.job_id == job_id]

    def newest(self) -> dict[str, Run]:
        """The last run of each job."""
        return {run.job_id: run for run in self.by_lease.values()}

    def next_began_s(self, job_id: str, after_s: float) -> float | None:
        """When *job_id* began to run again after a moment."""
        return next((run.began_s for run in self.of_job(job_id) if run.began_s > after_s), None)
