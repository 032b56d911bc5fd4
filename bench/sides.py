"""What a benchmark of queues compares: sides, each run in a fresh process of its own.

A side is a module (``bench.ours``, ``bench.limits.queue``, ``bench.peers.*``) with the names of `Side`. The
benchmark starts ``bench.child`` for each thing a side does and reads its JSON lines, so that no side is
measured with another's imports, caches or garbage. Times of several processes compare: ``time.perf_counter``
is one clock of the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

OUR_LOOP = "asyncio"
"""The event loop of ``fairlead run``, and so of the limit beside it."""
TENANTS = 100
LONGEST_LINE = 1 << 28
"""Bytes; the claims of a long run are one line."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A no-op job. All sides store the same *args*, which hold the tenant for sides without tenants."""

    tenant: str
    args: Mapping[str, Any]


def samples(count: int, first: int = 0) -> list[Sample]:
    """Return *count* jobs, over 100 tenants in turn, with about 100 bytes of arguments."""
    jobs = []
    for number in range(first, first + count):
        tenant = f"tenant-{number % TENANTS}"
        jobs.append(
            Sample(tenant, {"order": number, "tenant": tenant, "note": "ship it with the others " * 2})
        )
    return jobs


@dataclass(slots=True)
class Watch:
    """The runs and the claims of a worker."""

    runs: int = 0
    first_at: float = 0.0
    claims: list[tuple[float, float, int]] = field(default_factory=list)
    """Start, seconds and number of jobs of each claim."""

    def ran(self) -> None:
        """Count a run; each no-op job calls this."""
        if not self.runs:
            self.first_at = time.perf_counter()
        self.runs += 1

    def timed(self, claim: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return *claim* in a wrapper that records each call."""

        async def timed_claim(*args: Any, **kwargs: Any) -> Any:
            start_mono = time.perf_counter()
            jobs = await claim(*args, **kwargs)
            self.claims.append((start_mono, time.perf_counter() - start_mono, len(jobs)))
            return jobs

        return timed_claim


class Producer(Protocol):
    """What enqueues the jobs of a side."""

    async def enqueue_one(self, job: Sample) -> None:
        """Enqueue one job the way it is documented for one."""

    async def enqueue_many(self, jobs: Sequence[Sample]) -> None:
        """Enqueue many the way it is documented for many."""


class Side(Protocol):
    """The names of such a module."""

    PACKAGE: str | None
    """Its distribution, for the version; None for code of this repository."""
    LOOP: str
    """``uvloop`` or ``asyncio``: what its own command runs on, or is documented to be fastest on."""
    SETTINGS: Mapping[str, Any]
    """Settings that differ from its defaults; shown in the row."""
    OPEN: str
    """SQL that counts the no-op jobs without a stored end."""

    async def prepare(self, url: str) -> None:
        """Create its tables, with its own tool, in an empty database."""

    def producer(self, url: str) -> AbstractAsyncContextManager[Producer]:
        """Connect and yield a producer."""

    async def work(self, url: str, watch: Watch, options: Mapping[str, Any]) -> None:
        """Run one worker until cancelled."""


class SkippedError(Exception):
    """This side cannot run here, for the reason in the message."""


class SideFailedError(RuntimeError):
    """A child ended without an answer. The message is its last line."""


@dataclass(slots=True)
class Contender:
    """A side in this benchmark, and its measurements."""

    name: str
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    skipped: str | None = None
    figures: dict[str, list[float]] = field(default_factory=dict)

    def note(self, **figures: float) -> None:
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(value)

    def median(self, figure: str) -> float:
        return statistics.median(self.figures[figure])


# ---- run a side --------------------------------------------------------------------------------


async def ask(
    module: str, act: str, url: str, limit_s: float, *, program: str = "bench.child", **options: Any
) -> dict[str, Any]:
    """Start a child and return its one answer. Raise SkippedError or SideFailedError. The child always ends."""
    async with started(module, act, url, program=program, **options) as child:
        try:
            async with asyncio.timeout(limit_s):
                return await child.line()
        except TimeoutError:
            raise SideFailedError(f"{module} {act}: no answer within {limit_s:g} s") from None


class Child:
    """A side that runs in its own process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._name = name
        self._process = process
        self._errors = errors

    async def line(self) -> dict[str, Any]:
        """Return the next line."""
        assert self._process.stdout is not None
        text = await self._process.stdout.readline()
        if not text:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            raise SideFailedError(f"{self._name}: {lines[-1] if lines else 'ended without a word'}")
        answer: dict[str, Any] = json.loads(text)
        if "skipped" in answer:
            raise SkippedError(answer["skipped"])
        return answer

    def stop(self) -> None:
        """Close its standard input, so that ``load`` and ``serve`` print a last line and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()


@asynccontextmanager
async def started(
    module: str, act: str, url: str, *, program: str = "bench.child", **options: Any
) -> AsyncIterator[Child]:
    """Yield a child, which is killed after the block. Its files are removed."""
    with (
        tempfile.TemporaryFile() as errors,  # a pipe that is not read would block it when full
        tempfile.TemporaryDirectory(prefix="fl-bench-") as scratch,
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", program, module, act, url, json.dumps(options)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"TMPDIR": scratch},
            limit=LONGEST_LINE,
        )
        try:
            yield Child(f"{module} {act}", process, errors)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()
