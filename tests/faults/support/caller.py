"""The child of a gate's experiment: the gate of one process as the product wires it, and callers that use it.

Each caller waits to be let in, is in flight at the upstream for a while, and comes again; some are cancelled
in between, at whatever they are, and some hold up the whole process for a moment. Errors that no caller may
see are written to the ledger at once, one JSON line each; all else is counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds, draw
from fairlead.assembly.gate import GateCore, GateSettings
from fairlead.engine.limits.admission import Admission, AdmissionRequest
from fairlead.engine.ports import AdmitRequest, AdmitResult, Admitted, Release
from fairlead.errors import LimitExceededError, SlotLostError
from fairlead.events import Event, GateDegraded, GateRestored, ServiceFailed
from fairlead.policy.limits.limit import BucketLimit, Degraded, Domain, Plan, PoolLimit, QuotaLimit
from fairlead.policy.limits.pool import Holder
from fairlead.policy.limits.share import Share
from tests.faults.support import gateless
from tests.faults.support.sink import Sink

DOMAIN = Domain(("tenant", "acme"))
PREFIX = "fault"


def plan_of(fields: dict[str, Any]) -> Plan:
    """The limits that an order names: ``pool``, ``buckets``, ``quota``, ``degraded``."""
    return Plan(
        DOMAIN,
        quota=QuotaLimit(**fields["quota"]) if fields.get("quota") else None,
        pool=PoolLimit(**fields["pool"]) if fields.get("pool") else None,
        buckets=tuple(BucketLimit(**bucket) for bucket in fields.get("buckets", ())),
        degraded=Degraded(fields.get("degraded", "local_share")),
    )


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """Live until told to stop, or until the other end is gone."""
    gateless.prepare(order.get("unsafe", ()))
    asyncio.run(_Caller(order).live(channel))


class _Upstream:
    """Our connection to the provider."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._ended: dict[int, asyncio.Event] = {}

    async def open(self, port: int) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._listening = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._ended.pop(int(line)).set()

    def _tell(self, act: str, lease: int, **more: Any) -> None:
        record = {"act": act, "process": self._process, "lease": lease, **more}
        self._writer.write(json.dumps(record).encode() + b"\n")

    @asynccontextmanager
    async def call(self, lease: int, admission: Admission) -> AsyncIterator[None]:
        """In flight while the block runs; the provider knows of its end before this returns."""
        cost = sum(admission.admitted.spent)
        self._tell("begin", lease, s=time.monotonic(), local=admission.admitted.local, cost=cost)
        try:
            yield
        finally:
            ended = self._ended[lease] = asyncio.Event()
            self._tell("end", lease)
            await _surely(ended)


async def _surely(event: asyncio.Event) -> None:
    """Wait for *event*; who is cancelled meanwhile is so afterwards."""
    waiting = asyncio.ensure_future(event.wait())
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class _Caller:
    """Carries out orders on one gate."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._process: str = order["process"]
        self._sink = Sink(Path(order["ledger"]))
        self._chance = Random(order["seed"])
        self._plan = plan_of(order["plan"])
        self._upstream = _Upstream(self._process)
        self._counts: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._longest_retry_s = 0.0
        self._longest_wait_s = 0.0
        self._away_s: list[float] = []
        self._asks = 0
        self._callers: list[asyncio.Task[None]] = []
        self._resting = False
        self._leases = SystemIds()

    # ---- orders

    async def live(self, channel: socket.socket) -> None:
        reader, self._writer = await asyncio.open_connection(sock=channel, limit=1 << 22)
        await self._upstream.open(self._order["upstream"])
        self._house = house_of(self._order, self._hear)
        await self._house.open()
        self._count_asks()
        services = [asyncio.create_task(service.run()) for service in self._house.services()]
        self._reply({"number": 0, "session_id": self._process})
        while line := await reader.readline():
            order = json.loads(line)
            if order["what"] == "stop":
                break
            answer = await getattr(self, f"_{order['what']}")(**order["how"])
            self._reply({"number": order["number"]} | answer)
        else:
            os._exit(1)
        await self._rest()
        for service in services:
            service.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(3.0):
                await self._house.close()
        self._reply({"number": order["number"]})

    def _count_asks(self) -> None:
        admit = self._house.gate.admit

        async def counted(ask: AdmitRequest) -> AdmitResult:
            if ask.plan is self._plan:
                self._asks += 1
            return await admit(ask)

        self._house.gate.admit = counted  # type: ignore[method-assign]

    def _reply(self, answer: dict[str, Any]) -> None:
        self._writer.write(json.dumps(answer).encode() + b"\n")

    async def _run(self) -> dict[str, Any]:
        self._resting = False
        self._callers = [asyncio.create_task(self._calls()) for _ in range(self._order["callers"])]
        plans = [
            replace(self._plan, domain=Domain(("tenant", str(n)))) for n in range(self._order.get("keys", 0))
        ]
        self._callers += [asyncio.create_task(self._besides(plan)) for plan in plans]
        if "wall_jumps_s" in self._order:
            self._callers.append(asyncio.create_task(self._jumps()))
        return {}

    async def _jumps(self) -> None:
        """The wall clock of this process is set to and fro."""
        real, real_ns = time.time, time.time_ns
        while not self._resting:
            offset_s = self._chance.choice([-600, 0, 600])
            time.time = lambda by_s=offset_s: real() + by_s  # type: ignore[assignment,misc]
            time.time_ns = lambda by_s=offset_s: real_ns() + by_s * 10**9  # type: ignore[assignment,misc]
            self._counts["wall_jumps"] += 1
            await asyncio.sleep(self._order["wall_jumps_s"])

    async def _besides(self, plan: Plan) -> None:
        """A call of another tenant now and then; it goes to another provider."""
        while not self._resting:
            entry = AdmissionRequest(plan, "other", "provider", wait_s=30.0)
            async with self._house.admitter.enter(entry):
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._chance.uniform(0.1, 0.5))

    async def _rest(self) -> dict[str, Any]:
        """No caller comes again; what they counted."""
        self._resting = True
        if self._callers:
            await asyncio.wait(self._callers)
        await self._house.renewer.drained()
        self._callers = []
        return await self._figures()

    async def _figures(self) -> dict[str, Any]:
        return {
            "counts": dict(self._counts),
            "closed": dict(self._closed),
            "longest_retry_s": self._longest_retry_s,
            "longest_wait_s": self._longest_wait_s,
            "away_s": self._away_s,
            "asks": self._asks,
            "alone": self._house.gate.is_degraded,
        }

    async def _free(self) -> dict[str, Any]:
        """How many slots can be had now; they are given back."""
        plan, admissions = Plan(DOMAIN, pool=self._plan.pool), list[Admitted]()
        try:
            while True:
                holder = Holder(self._leases.lease_id(), self._process, "acme")
                answer = await self._house.gate.admit(AdmitRequest(plan, holder=holder))
                if not isinstance(answer, Admitted):
                    return {"free": len(admissions)}
                admissions.append(answer)
        finally:
            for admitted in admissions:
                await self._house.gate.release(Release(admitted))

    def _hear(self, event: Event) -> None:
        self._counts[event.name] += 1
        if isinstance(event, GateRestored):
            self._away_s.append(event.outage_s)
        if isinstance(event, GateDegraded):
            self._sink.write(told="degraded", process=self._process, s=time.monotonic(), why=event.reason)
        if isinstance(event, ServiceFailed):
            self._sink.write(told="failed", process=self._process, error="ServiceFailed", said=event.reason)

    # ---- callers

    async def _calls(self) -> None:
        calls_left = self._order.get("calls", 1 << 60)
        while calls_left and not self._resting:
            calls_left -= 1
            call = asyncio.create_task(self._call())
            timer = None
            if self._chance.random() < self._order.get("cancel", 0.0):
                after_s = self._chance.uniform(0.0, self._order.get("cancel_within_s", 0.1))
                timer = asyncio.get_running_loop().call_later(after_s, call.cancel)
            await asyncio.wait([call])
            if timer is not None:
                timer.cancel()
            self._note(call)
            if self._chance.random() < self._order.get("stall", 0.0):
                self._counts["stalls"] += 1
                time.sleep(self._chance.uniform(*self._order["stall_s"]))
            await asyncio.sleep(self._chance.uniform(*self._order.get("pause_s", (0.0, 0.0))))

    def _note(self, call: asyncio.Task[None]) -> None:
        if call.cancelled():
            self._counts["cancelled"] += 1
            return
        error = call.exception()
        match error:
            case None:
                self._counts["done"] += 1
            case SlotLostError():
                self._counts["slot_lost"] += 1
            case LimitExceededError():
                self._closed[error.reason] += 1
                self._longest_retry_s = max(self._longest_retry_s, error.retry_after_s or 0.0)
            case _:
                traceback.print_exception(error)
                name = type(error).__name__
                self._sink.write(told="failed", process=self._process, error=name, said=str(error)[:300])

    async def _call(self) -> None:
        entry = AdmissionRequest(
            self._plan,
            "acme",
            "provider",
            costs=tuple(self._order.get("costs", ())),
            wait_s=self._order.get("wait_s", 30.0),
        )
        async with self._house.admitter.enter(entry) as admission:
            self._longest_wait_s = max(self._longest_wait_s, admission.waited_s)
            holder = admission.admitted.holder
            lease = holder.lease_id if holder is not None else self._leases.lease_id()
            async with self._upstream.call(lease, admission):
                await asyncio.sleep(self._chance.uniform(*self._order["work_s"]))


def house_of(order: dict[str, Any], emit: Any) -> GateCore:
    """The gate of one process, as *order* has it."""
    settings = GateSettings(
        prefix=PREFIX,
        new=order.get("new", True),
        lease_s=order["lease_s"],
        beat_s=order.get("beat_s", 0.1),
        events=order.get("events", 1_000_000),
        spends=order.get("spends", 0),
    )
    return GateCore(
        Secret(order["url"]),
        process=order["process"],
        clock=SystemClock(),
        draw=draw,
        ids=SystemIds(),
        emit=emit,
        share=lambda: Share(order.get("processes", 1), order.get("rank", 0)),
        settings=settings,
    )
