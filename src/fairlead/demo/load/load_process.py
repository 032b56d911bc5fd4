"""A process of a simulated load: the gate as the product wires it, and calls that come whatever happens.

``python -m fairlead.demo.load.load_process SOCKET RANK``. Its order comes over the socket, its figures go back
over it; it ends with that connection. Calls come as from many independent customers: at random times, and no
call waits for an earlier one.
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

TELL_EVERY_S = 0.1
MOST_OPEN = 5_000
"""Calls that wait or run at once; what comes beyond is not begun, and is counted."""


@dataclass
class LoadTally:
    """What happened since it was told last."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    waits_ms: list[float] = field(default_factory=list)
    turn_s: float = 0.0


class LoadProcess:
    """Carries out one order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rank: int) -> None:
        self._reader, self._writer = reader, writer
        self._rank = rank
        self._tally = LoadTally()
        self._waiting = 0
        self._numbers = count(1)
        self._served: dict[int, asyncio.Future[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def live(self) -> None:
        """From the order to the end."""
        self._tell({"rank": self._rank})
        order = json.loads(await self._reader.readline())
        self._load = Load(**order["load"])
        self._chance = Random(f"{self._load.seed}.{self._rank}")  # noqa: S311 (when calls come is no secret)
        self._limits = {tenant: self._load.limits(tenant) for tenant in self._load.names}
        house = self._house(order)
        await house.open()
        beside = [asyncio.ensure_future(service.run()) for service in house.services()]
        running = asyncio.ensure_future(self._run(house))
        running.add_done_callback(lambda _: self._writer.write_eof())
        try:
            await self._listen()
            if running.done():
                running.result()
        finally:
            tasks = {running, *beside, *self._calls}
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await house.close()

    def _house(self, order: dict[str, Any]) -> GateCore:
        return GateCore(
            Secret(order["url"]),
            process=f"simulated-{self._rank}",
            clock=SystemClock(),
            draw=self._chance.random,
            ids=CountedIds(self._rank << 40),
            emit=self._hear,
            share=lambda: Share(self._load.processes, self._rank),
            settings=GateSettings(prefix=order["prefix"], new=True),
        )

    def _hear(self, event: Event) -> None:
        self._tell({"event": event.name})

    def _tell(self, told: dict[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(told).encode() + b"\n")

    async def _listen(self) -> None:
        """Until the other end is gone."""
        while line := await self._reader.readline():
            told = json.loads(line)
            if "done" in told:
                self._served.pop(told["done"]).set_result(None)
            else:
                self._stopping = True

    # ---- calls

    async def _run(self, house: GateCore) -> None:
        """Begin calls until told to stop; give the last figures once all have ended."""
        telling = asyncio.ensure_future(self._tell_figures())
        per_s, due_s = self._load.rate / self._load.processes, time.monotonic()
        while not self._stopping:
            while due_s <= time.monotonic():
                self._begin(house)
                due_s += self._chance.expovariate(per_s)
            await asyncio.sleep(min(due_s - time.monotonic(), TELL_EVERY_S))
        while self._calls:
            await asyncio.wait(self._calls)
        telling.cancel()
        self._tell_now()

    def _begin(self, house: GateCore) -> None:
        self._tally.counts["offered"] += 1
        if len(self._calls) >= MOST_OPEN:
            self._tally.counts["not_begun"] += 1
            return
        task = asyncio.ensure_future(self._call(house, self._chance.choice(self._load.names)))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, house: GateCore, tenant: str) -> None:
        call_s = self._load.hold_s + 10.0
        entry = AdmissionRequest(
            self._limits[tenant], tenant, PROVIDER, wait_s=self._load.wait_s, call_s=call_s
        )
        began_s, waiting = time.monotonic(), 1
        self._waiting += waiting
        try:
            async with house.admitter.enter(entry) as admission:
                self._waiting -= waiting
                waiting = 0
                self._entered(admission, time.monotonic() - began_s)
                await self._upstream(tenant)
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

    def _entered(self, admission: Admission, took_s: float) -> None:
        tally = self._tally
        tally.counts["admitted"] += 1
        tally.counts["local"] += admission.admitted.local
        tally.waits_ms.append(round(took_s * 1000, 2))
        tally.turn_s = max(tally.turn_s, took_s - admission.waited_s)

    async def _upstream(self, tenant: str) -> None:
        call = next(self._numbers)
        served = self._served[call] = asyncio.get_running_loop().create_future()
        self._tell({"call": call, "tenant": tenant, "s": time.monotonic()})
        await served

    # ---- figures

    async def _tell_figures(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            self._tell_now()

    def _tell_now(self) -> None:
        told, self._tally = self._tally, LoadTally()
        self._tell(
            {
                "figures": {
                    "counts": told.counts,
                    "refused": told.refused,
                    "waits_ms": told.waits_ms,
                    "turn_s": told.turn_s,
                    "waiting": self._waiting,
                }
            }
        )


async def main(place: str, rank: int) -> None:
    """Serve the run that listens at *place*."""
    reader, writer = await asyncio.open_unix_connection(place, limit=1 << 20)
    await LoadProcess(reader, writer, rank).live()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
