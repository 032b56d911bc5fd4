"""A provider as the experiments of the gate see it: what is in flight there is the truth (P7, P8).

A process keeps one connection to it and tells each call's begin and end over it, one JSON line each; an end
is acknowledged before its slot may be given back. With the connection end all calls of the process. Calls of
a process that was frozen or killed are marked: nobody can call them back (R30).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from fairlead.policy.limits.limit import MICRO


@dataclass(eq=False, slots=True)
class Call:
    """One call as it is served."""

    process: str
    lease: int
    limit: int
    admitted_s: float
    arrived_s: float
    local: bool
    cost: float
    excused: bool = False
    ended_s: float | None = None


@dataclass
class Upstream:
    """Made by `upstream`. *limit* calls may be in flight (0: any number)."""

    limit: int = 0
    port: int = 0
    calls: list[Call] = field(default_factory=list)
    most: int = 0
    most_unexcused: int = 0
    over: int = 0
    overs: list[tuple[float, float]] = field(default_factory=list)
    """From when until when more than the limit were in flight that nothing excuses."""
    excused_over: int = 0
    filled_s: list[float] = field(default_factory=list)
    """When the limit was reached by calls that the fleet's counts let in, none by a share."""
    _open: dict[tuple[str, int], Call] = field(default_factory=dict)
    _thawed_s: dict[str, float] = field(default_factory=dict)
    _over_since_s: float | None = None

    # ---- what a test tells it

    def excuse(self, process: str, until_s: float | None = None) -> None:
        """*process* is frozen or killed: what was let in before *until_s* (default: now) may run on."""
        self._thawed_s[process] = time.monotonic() if until_s is None else until_s
        for call in self._open.values():
            if call.process == process:
                call.excused = True

    # ---- serving

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The connection of one process."""
        mine: set[tuple[str, int]] = set()
        with suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                order = json.loads(line)
                key = (order["process"], order["lease"])
                if order["act"] == "begin":
                    mine.add(key)
                    self._begin(key, order)
                else:
                    mine.discard(key)
                    self._end(key)
                    writer.write(b"%d\n" % order["lease"])
        for key in mine:
            self._end(key)
        writer.close()

    def _begin(self, key: tuple[str, int], order: dict[str, Any]) -> None:
        call = Call(
            order["process"],
            order["lease"],
            self.limit,
            order["s"],
            time.monotonic(),
            order["local"],
            order["cost"],
        )
        call.excused = call.admitted_s < self._thawed_s.get(call.process, 0.0)
        self.calls.append(call)
        self._open[key] = call
        self._count()

    def _end(self, key: tuple[str, int]) -> None:
        call = self._open.pop(key, None)
        if call is not None:
            call.ended_s = time.monotonic()
            self._count(ends=True)

    def _count(self, *, ends: bool = False) -> None:
        in_flight = len(self._open)
        excused = sum(call.excused for call in self._open.values())
        if in_flight == self.limit and not ends and not any(call.local for call in self._open.values()):
            self.filled_s.append(time.monotonic())
        self.most = max(self.most, in_flight)
        self.most_unexcused = max(self.most_unexcused, in_flight - excused)
        is_over = bool(self.limit) and in_flight - excused > self.limit
        if is_over and not ends:
            self.over += 1
        elif self.limit and in_flight > self.limit and not ends:
            self.excused_over += 1
        if is_over and self._over_since_s is None:
            self._over_since_s = time.monotonic()
        elif not is_over and self._over_since_s is not None:
            self.overs.append((self._over_since_s, time.monotonic()))
            self._over_since_s = None

    # ---- what it tells

    @property
    def in_flight(self) -> int:
        return len(self._open)

    def first_after(self, moment_s: float, *, local: bool | None = None) -> float | None:
        """When the first call after *moment_s* was let in, by the fleet's counts or by a share."""
        return next(
            (call.admitted_s for call in self.calls
             if call.admitted_s > moment_s and (local is None or call.local == local)), None
        )  # fmt: skip

    def spends(self, since_s: float = 0.0, until_s: float = float("inf")) -> list[tuple[int, int]]:
        """(time in us, cost in micro-units) of each arrival within a time."""
        return [
            (round(call.arrived_s * MICRO), round(call.cost * MICRO))
            for call in self.calls
            if since_s <= call.arrived_s < until_s
        ]

    def lag_s(self) -> float:
        """The longest from a leave to the arrival: so much later than it was let through a call may come."""
        return max((call.arrived_s - call.admitted_s for call in self.calls if not call.excused), default=0.0)


@asynccontextmanager
async def upstream(limit: int = 0) -> AsyncIterator[Upstream]:
    """One on a port of its own."""
    upstream = Upstream(limit)
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await upstream.serve(reader, writer)
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
