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
"""What ``fairlead run`` runs on, and so the limit beside it."""
TENANTS = 100
LONGEST_LINE = 1 << 28
"""The claims of a long run are one line."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One no-op job. Every side stores the same *args*; what has no tenants has them in there."""

    tenant: str
    args: Mapping[str, Any]


def samples(count: int, first: int = 0) -> list[Sample]:
    """*count* jobs, over 100 tenants in turn, with about 100 bytes of arguments."""
    made = []
    for number in range(first, first + count):
        tenant = f"tenant-{number % TENANTS}"
        made.append(
            Sample(tenant, {"order": number, "tenant": tenant, "note": "ship it with the others " * 2})
        )
    return made


@dataclass(slots=True)
class Watch:
    """What a worker tells while it works: jobs that ran and claims that were made."""

    runs: int = 0
    first_at: float = 0.0
    claims: list[tuple[float, float, int]] = field(default_factory=list)
    """When it began, seconds it took, jobs it gave."""

    def ran(self) -> None:
        """To be called by each no-op job."""
        if not self.runs:
            self.first_at = time.perf_counter()
        self.runs += 1

    def timed(self, claim: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """*claim*, noted each time it is called."""

        async def noted(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            found = await claim(*args, **kwargs)
            self.claims.append((began, time.perf_counter() - began, len(found)))
            return found

        return noted


class Producer(Protocol):
    """How a side takes jobs in."""

    async def one(self, job: Sample) -> None:
        """Enqueue one job the way it is documented for one."""

    async def many(self, jobs: Sequence[Sample]) -> None:
        """Enqueue many the way it is documented for many."""


class Side(Protocol):
    """What such a module has."""

    PACKAGE: str | None
    """Its distribution, for the version; None for code of this repository."""
    LOOP: str
    """``uvloop`` or ``asyncio``: what its own command runs on, or is documented to be fastest on."""
    SETTINGS: Mapping[str, Any]
    """What it was given that is not its default; told in the row."""
    OPEN: str
    """SQL that counts the no-op jobs whose end is not yet stored."""

    async def prepare(self, url: str) -> None:
        """Lay its tables, with its own tool, into an empty database."""

    def producer(self, url: str) -> AbstractAsyncContextManager[Producer]:
        """Connected, ready to enqueue."""

    async def work(self, url: str, watch: Watch, options: Mapping[str, Any]) -> None:
        """Be one worker process until cancelled."""


class Skipped(Exception):
    """This side cannot run here; says why."""


class SideFailed(RuntimeError):
    """A child ended without an answer; says what it said last."""


@dataclass(slots=True)
class Contender:
    """A side in this benchmark, and what was measured of it."""

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
    """The one answer of a child. Raises Skipped or SideFailed; the child is gone in any case."""
    async with started(module, act, url, program=program, **options) as child:
        try:
            async with asyncio.timeout(limit_s):
                return await child.line()
        except TimeoutError:
            raise SideFailed(f"{module} {act}: no answer within {limit_s:g} s") from None


class Child:
    """A side at work in its own process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._name = name
        self._process = process
        self._errors = errors

    async def line(self) -> dict[str, Any]:
        """Its next line."""
        assert self._process.stdout is not None
        text = await self._process.stdout.readline()
        if not text:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise SideFailed(f"{self._name}: {said[-1] if said else 'ended without a word'}")
        told: dict[str, Any] = json.loads(text)
        if "skipped" in told:
            raise Skipped(told["skipped"])
        return told

    def stop(self) -> None:
        """Close its standard input: ``load`` and ``serve`` end then, and say one line more."""
        assert self._process.stdin is not None
        self._process.stdin.close()


@asynccontextmanager
async def started(
    module: str, act: str, url: str, *, program: str = "bench.child", **options: Any
) -> AsyncIterator[Child]:
    """A child for as long as the block lasts; then it is killed, and its files go with it."""
    with (
        tempfile.TemporaryFile() as errors,  # a pipe that nobody reads would stop it one day
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
