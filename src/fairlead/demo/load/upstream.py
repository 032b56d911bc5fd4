"""The provider of a simulated load, which counts what arrives.

Each process has one connection to it. A call is one JSON line; its response comes after the hold.
"""

from __future__ import annotations

import asyncio
import json
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.demo.load.load_plan import Load
from fairlead.policy.limits.event_log_check import verify_bucket_log
from fairlead.policy.limits.limit import MICRO

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """Whether the arrivals kept the limits."""

    arrived: int
    over_units: float
    """By how much some window of a tenant exceeds capacity + rate · W."""
    allowed_units: float
    """The refill during the slowest call's transit: calls admitted one after another can arrive together."""
    most_in_flight: int
    """The most calls of one tenant in flight."""
    slots: int

    @property
    def rate_held(self) -> bool:
        """Whether no window exceeds the bucket."""
        return self.over_units <= self.allowed_units

    @property
    def slots_held(self) -> bool:
        """Whether there were never more calls in flight than slots."""
        return not self.slots or self.most_in_flight <= self.slots


@dataclass
class Upstream:
    """The server for the processes of one run; *on_message* gets their messages other than calls."""

    load: Load
    on_message: Callable[[int, Message], None]
    in_flight: Counter[str] = field(default_factory=Counter)
    most: int = 0
    lag_s: float = 0.0
    """The longest time from the start of a call to its arrival."""
    _arrivals: dict[str, array[int]] = field(default_factory=dict)
    _writers: dict[int, asyncio.StreamWriter] = field(default_factory=dict)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self, socket: Path) -> asyncio.Server:
        """Listen at a Unix socket."""
        return await asyncio.start_unix_server(self._serve, str(socket), limit=1 << 20)

    async def close(self) -> None:
        """Close the connections to all processes."""
        for writer in self._open:
            writer.close()
        while self._serving:
            await asyncio.wait(self._serving)

    def send(self, rank: int, message: Message) -> None:
        """Send one line to a process."""
        self._writers[rank].write(json.dumps(message).encode() + b"\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._open.add(writer)
        rank: int | None = None
        try:
            with suppress(ConnectionError):
                while line := await reader.readline():
                    message = json.loads(line)
                    if "call" in message:
                        self._count_arrival(message, writer)
                        continue
                    if rank is None:
                        rank = int(message["rank"])
                        self._writers[rank] = writer
                    self.on_message(rank, message)
            if rank is not None:
                self.on_message(rank, {"gone": True})
        finally:
            self._serving.discard(task)
            self._open.discard(writer)
            writer.close()

    def _count_arrival(self, message: Message, writer: asyncio.StreamWriter) -> None:
        now_mono, tenant = time.monotonic(), message["tenant"]
        self.lag_s = max(self.lag_s, now_mono - message["started_mono"])
        self._arrivals.setdefault(tenant, array("q")).append(round(now_mono * MICRO))
        self.in_flight[tenant] += 1
        self.most = max(self.most, self.in_flight[tenant])
        asyncio.get_running_loop().call_later(
            self.load.hold_s, self._respond, tenant, message["call"], writer
        )

    def _respond(self, tenant: str, call: int, writer: asyncio.StreamWriter) -> None:
        self.in_flight[tenant] -= 1
        if not writer.is_closing():
            writer.write(b'{"done": %d}\n' % call)

    @property
    def arrived(self) -> int:
        """The number of calls so far."""
        return sum(len(times) for times in self._arrivals.values())

    def check(self, max_admission_s: float) -> LimitCheck:
        """Compare the arrivals with the limits; *max_admission_s* is the longest admission, without its wait."""
        bucket = self.load.bucket
        verdicts = [
            verify_bucket_log(
                ((at_us, MICRO) for at_us in times), capacity=bucket.capacity_micro, rate=bucket.rate_micro
            )
            for times in self._arrivals.values()
        ]
        return LimitCheck(
            arrived=self.arrived,
            over_units=max((verdict.max_excess for verdict in verdicts), default=0.0),
            allowed_units=bucket.per_s * (self.lag_s + max_admission_s),
            most_in_flight=self.most,
            slots=self.load.slots,
        )
