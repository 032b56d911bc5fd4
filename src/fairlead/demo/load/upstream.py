"""The provider of a simulated load: what arrives at it is the truth, whatever the gate says of itself.

Each process keeps one connection to it. A call is one JSON line; its answer comes back after the hold.
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

Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """Whether the limits held, by what arrived."""

    arrived: int
    over_units: float
    """By how much some window of some tenant held more than capacity + rate · W."""
    allowed_units: float
    """What came back while the slowest call was on its way: calls let through in turn may arrive together."""
    most_in_flight: int
    """Of one tenant."""
    slots: int

    @property
    def rate_held(self) -> bool:
        """No window above the bucket."""
        return self.over_units <= self.allowed_units

    @property
    def slots_held(self) -> bool:
        """Never more in flight than slots."""
        return not self.slots or self.most_in_flight <= self.slots


@dataclass
class Upstream:
    """Serves the processes of one run; *hear* is given whatever else they say."""

    load: Load
    hear: Callable[[int, Told], None]
    in_flight: Counter[str] = field(default_factory=Counter)
    most: int = 0
    lag_s: float = 0.0
    """The longest from a leave to the arrival."""
    _arrivals: dict[str, array[int]] = field(default_factory=dict)
    _writers: dict[int, asyncio.StreamWriter] = field(default_factory=dict)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self, place: Path) -> asyncio.Server:
        """Listen at the Unix socket *place*."""
        return await asyncio.start_unix_server(self._serve, str(place), limit=1 << 20)

    async def close(self) -> None:
        """Let go of every process."""
        for writer in self._open:
            writer.close()
        while self._serving:
            await asyncio.wait(self._serving)

    def tell(self, rank: int, told: Told) -> None:
        """One line to a process."""
        self._writers[rank].write(json.dumps(told).encode() + b"\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._open.add(writer)
        rank: int | None = None
        try:
            with suppress(ConnectionError):
                while line := await reader.readline():
                    told = json.loads(line)
                    if "call" in told:
                        self._arrived(told, writer)
                        continue
                    if rank is None:
                        rank = int(told["rank"])
                        self._writers[rank] = writer
                    self.hear(rank, told)
            if rank is not None:
                self.hear(rank, {"gone": True})
        finally:
            self._serving.discard(task)
            self._open.discard(writer)
            writer.close()

    def _arrived(self, told: Told, writer: asyncio.StreamWriter) -> None:
        now_s, tenant = time.monotonic(), told["tenant"]
        self.lag_s = max(self.lag_s, now_s - told["s"])
        self._arrivals.setdefault(tenant, array("q")).append(round(now_s * MICRO))
        self.in_flight[tenant] += 1
        self.most = max(self.most, self.in_flight[tenant])
        asyncio.get_running_loop().call_later(self.load.hold_s, self._served, tenant, told["call"], writer)

    def _served(self, tenant: str, call: int, writer: asyncio.StreamWriter) -> None:
        self.in_flight[tenant] -= 1
        if not writer.is_closing():
            writer.write(b'{"done": %d}\n' % call)

    @property
    def arrived(self) -> int:
        """Calls so far."""
        return sum(len(times) for times in self._arrivals.values())

    def judge(self, turn_s: float) -> LimitCheck:
        """What arrived against the limits. *turn_s*: the longest that the gate took to say yes."""
        bucket = self.load.bucket
        verdicts = [
            verify_bucket_log(
                ((at_us, MICRO) for at_us in times), capacity=bucket.capacity_micro, rate=bucket.rate_micro
            )
            for times in self._arrivals.values()
        ]
        return LimitCheck(
            arrived=self.arrived,
            over_units=max((verdict.most_over for verdict in verdicts), default=0.0),
            allowed_units=bucket.per_s * (self.lag_s + turn_s),
            most_in_flight=self.most,
            slots=self.load.slots,
        )
