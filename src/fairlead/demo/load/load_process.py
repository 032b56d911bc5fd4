"""A process of a simulated load: the product's gate, and calls at random times.

``python -m fairlead.demo.load.load_process SOCKET RANK``. It receives its load over the socket, returns its figures
over it, and ends with that connection. Calls start as those of many independent customers do: at random times, and
without waiting for earlier ones.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from fairlead._core.secret import Secret
from fairlead.assembly.gate import GateCore, GateSettings
from fairlead.demo.load.load_plan import PROVIDER, Load
from fairlead.engine.limits.admission import Admission, AdmissionRequest
from fairlead.errors import LimiterUnavailableError, LimitExceededError, SlotLostError
from fairlead.events import Event
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.share import Share
from fairlead.testing._kit.clock import SystemClock
from fairlead.testing._kit.ids import CountedIds

REPORT_EVERY_S = 0.1
MAX_OPEN_CALLS = 5_000
"""Calls that wait or run at once; further ones are counted and not started."""


@dataclass
class LoadTally:
    """The figures since the last report."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    waits_ms: list[float] = field(default_factory=list)
    max_admission_s: float = 0.0


class LoadProcess:
    """One process that makes the calls of its load."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rank: int) -> None:
        self._reader, self._writer = reader, writer
        self._rank = rank
        self._tally = LoadTally()
        self._waiting = 0
        self._numbers = count(1)
        self._served: dict[int, asyncio.Future[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def run(self) -> None:
        """Receive the load, make its calls, and return when the connection ends."""
        self._send({"rank": self._rank})
        order = json.loads(await self._reader.readline())
        self._load = Load(**order["load"])
        self._chance = Random(f"{self._load.seed}.{self._rank}")  # noqa: S311 (when calls come is no secret)
        self._limits = {tenant: self._load.limits(tenant) for tenant in self._load.names}
        core = self._make_gate(order)
        await core.open()
        services = [asyncio.ensure_future(service.run()) for service in core.services()]
        running = asyncio.ensure_future(self._make_calls(core))
        running.add_done_callback(lambda _: self._writer.write_eof())
        try:
            await self._listen()
            if running.done():
                running.result()
        finally:
            tasks = {running, *services, *self._calls}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await core.close()

    def _make_gate(self, order: dict[str, Any]) -> GateCore:
        return GateCore(
            Secret(order["url"]),
            process=f"simulated-{self._rank}",
            clock=SystemClock(),
            draw=self._chance.random,
            ids=CountedIds(self._rank << 40),
            emit=self._report_event,
            share=lambda: Share(self._load.processes, self._rank),
            # no slot was ever granted under this prefix, so an empty server has lost no lease
            settings=GateSettings(prefix=order["prefix"], new=True),
        )

    def _report_event(self, event: Event) -> None:
        self._send({"event": event.name})

    def _send(self, message: dict[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def _listen(self) -> None:
        """Read messages until the connection ends."""
        while line := await self._reader.readline():
            message = json.loads(line)
            if "done" in message:
                self._served.pop(message["done"]).set_result(None)
            else:
                self._stopping = True

    # ---- calls

    async def _make_calls(self, core: GateCore) -> None:
        """Start calls until the stop message; report the last figures once all have ended."""
        reporting = asyncio.ensure_future(self._report_figures())
        per_s, due_mono = self._load.rate / self._load.processes, time.monotonic()
        while not self._stopping:
            while due_mono <= time.monotonic():
                self._start_call(core)
                due_mono += self._chance.expovariate(per_s)
            await asyncio.sleep(min(due_mono - time.monotonic(), REPORT_EVERY_S))
        while self._calls:
            await asyncio.wait(self._calls)
        reporting.cancel()
        self._report_now()

    def _start_call(self, core: GateCore) -> None:
        self._tally.counts["offered"] += 1
        if len(self._calls) >= MAX_OPEN_CALLS:
            self._tally.counts["not_begun"] += 1
            return
        task = asyncio.ensure_future(self._call(core, self._chance.choice(self._load.names)))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, core: GateCore, tenant: str) -> None:
        call_s = self._load.hold_s + 10.0
        entry = AdmissionRequest(
            self._limits[tenant], tenant, PROVIDER, wait_s=self._load.wait_s, call_s=call_s
        )
        started_mono, waiting = time.monotonic(), 1
        self._waiting += waiting
        try:
            async with core.admitter.enter(entry) as admission:
                self._waiting -= waiting
                waiting = 0
                self._count_admission(admission, time.monotonic() - started_mono)
                await self._call_upstream(tenant)
                admission.record_health(DestinationHealth.HEALTHY)
        except LimitExceededError as refused:
            self._tally.counts["refused"] += 1
            self._tally.refused[refused.reason or "unknown"] += 1
        except LimiterUnavailableError:
            self._tally.counts["unavailable"] += 1
        except SlotLostError:
            self._tally.counts["lost"] += 1
        finally:
            self._waiting -= waiting

    def _count_admission(self, admission: Admission, took_s: float) -> None:
        """Count an admitted call; *took_s* is the time of its admission with its wait."""
        tally = self._tally
        tally.counts["admitted"] += 1
        tally.counts["local"] += admission.admitted.local
        tally.waits_ms.append(round(took_s * 1000, 2))
        tally.max_admission_s = max(tally.max_admission_s, took_s - admission.waited_s)

    async def _call_upstream(self, tenant: str) -> None:
        call = next(self._numbers)
        served = self._served[call] = asyncio.get_running_loop().create_future()
        self._send({"call": call, "tenant": tenant, "started_mono": time.monotonic()})
        await served

    # ---- figures

    async def _report_figures(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self._report_now()

    def _report_now(self) -> None:
        tally, self._tally = self._tally, LoadTally()
        self._send(
            {
                "figures": {
                    "counts": tally.counts,
                    "refused": tally.refused,
                    "waits_ms": tally.waits_ms,
                    "max_admission_s": tally.max_admission_s,
                    "waiting": self._waiting,
                }
            }
        )


async def main(socket: str, rank: int) -> None:
    """Connect to the run at *socket*, and make its calls."""
    reader, writer = await asyncio.open_unix_connection(socket, limit=1 << 20)
    await LoadProcess(reader, writer, rank).run()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
