"""A process that cannot renew its slots stops by its own clock, before others have them (G4, R27, R30)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.limits.admission import AdmissionRequest
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.failover_gate import PING_INTERVAL_S, PING_TIMEOUT_S
from fairlead.engine.limits.lease_renewer import BEAT_SPREAD, LeaseRenewer
from fairlead.engine.ports import AdmitRequest, AdmitResult, Lease, Renewal
from fairlead.errors import LimiterUnavailableError, SlotLostError
from fairlead.policy.limits.limit import MICRO, Degraded, Domain, Plan, PoolLimit
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import IDS, Recorder, half
from tests.support.entrances import settled
from tests.support.several import Process, Store

DOMAIN = Domain(("tenant", "acme"))
LEASE_S, BEAT_S = 30.0, 3.0


class FarGate(LocalGate):
    """A gate behind a network: it may be cut off, or answer late."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(lambda: round(clock.monotonic() * MICRO))
        self.clock = clock
        self.cut = False
        self.answers_in_s = 0.0

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        answer = await super().admit(ask)
        if self.answers_in_s:
            await self.clock.sleep(self.answers_in_s)
        return answer

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        if self.cut:
            raise LimiterUnavailableError("it is not there")
        states = await super().renew(renewals)
        if self.answers_in_s:
            await self.clock.sleep(self.answers_in_s)
        return states


@dataclass
class Calls:
    """Calls of one process under slots of *plan*."""

    gate: Any
    clock: ManualClock
    renewer: LeaseRenewer
    plan: Plan
    running: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admitter = Admitter(
            self.gate, self.renewer, process="p", clock=self.clock, draw=half, ids=IDS, emit=Recorder()
        )

    async def begin(self) -> None:
        self.running.append(asyncio.create_task(self._call()))
        await settled()

    async def _call(self) -> None:
        async with self.admitter.enter(AdmissionRequest(self.plan, "acme", "shopify")):
            await asyncio.Event().wait()

    @property
    def left(self) -> int:
        return sum(not call.done() for call in self.running)

    async def end(self) -> None:
        for call in self.running:
            call.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)


def calls_of(clock: ManualClock, **pool: Any) -> tuple[FarGate, Calls]:
    gate = FarGate(clock)
    renewer = LeaseRenewer(gate, clock=clock, draw=half, emit=Recorder(), beat_s=BEAT_S)
    return gate, Calls(gate, clock, renewer, Plan(DOMAIN, pool=PoolLimit("p", 1, **pool)))


def calls_over(process: Process, plan: Plan) -> Calls:
    clock = process.way.store.clock
    renewer = LeaseRenewer(
        process.gate,
        clock=clock,
        draw=half,
        emit=Recorder(),
        beat_s=BEAT_S,
        is_degraded=lambda: process.gate.is_degraded,
    )
    return Calls(process.gate, clock, renewer, plan)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_000_000.0)


async def test_call_stops_before_its_lease_ends_without_a_heartbeat(clock: ManualClock) -> None:
    _, calls = calls_of(clock)
    await calls.begin()
    await clock.advance(LEASE_S * 0.95)
    assert calls.left == 1
    await clock.advance(LEASE_S * 0.04)
    assert calls.left == 0
    with pytest.raises(SlotLostError):
        await calls.running.pop()


async def test_call_stops_before_its_lease_ends_without_a_renewal(clock: ManualClock) -> None:
    gate, calls = calls_of(clock)
    await calls.begin()
    await clock.advance(9)
    await calls.renewer.beat()
    gate.cut = True
    for _ in range(9):
        await clock.advance(BEAT_S)
        await calls.renewer.beat()
    assert calls.left == 1, "27 s after the last renewal"
    await clock.advance(LEASE_S - 27 - 0.1)
    assert calls.left == 0
    await calls.end()


async def test_a_lease_counts_from_when_it_was_asked_for(clock: ManualClock) -> None:
    gate, calls = calls_of(clock)
    gate.answers_in_s = 8.0
    await calls.begin()
    await clock.advance(8.0)
    assert len(calls.running) == 1
    await clock.advance(LEASE_S - 8.0 - 0.1)
    assert calls.left == 0
    await calls.end()


async def test_a_renewal_counts_from_when_it_was_asked_for(clock: ManualClock) -> None:
    gate, calls = calls_of(clock)
    await calls.begin()
    await clock.advance(9)
    gate.answers_in_s = 8.0
    beat = asyncio.create_task(calls.renewer.beat())
    await clock.advance(8.0)
    await beat
    await clock.advance(LEASE_S - 8.0 - 2.0)
    assert calls.left == 1
    await clock.advance(1.9)
    assert calls.left == 0
    await calls.end()


@pytest.mark.parametrize(("fencing", "remaining"), [(False, 0), (True, 1)])
async def test_a_store_that_lost_everything_gives_slots_to_others_after_30_s(
    clock: ManualClock, fencing: bool, remaining: int
) -> None:
    """However long the lease was. Bulk operations, whose slots are fenced, do not trust such a store."""
    _, calls = calls_of(clock, lease_s=600.0, fencing=fencing)
    await calls.begin()
    await clock.advance(29.9)
    assert calls.left == remaining
    await calls.end()


async def test_renewed_call_continues_beside_an_expired_one(clock: ManualClock) -> None:
    gate, calls = calls_of(clock)
    calls.plan = Plan(DOMAIN, pool=PoolLimit("p", 2))
    await calls.begin()
    await clock.advance(9)
    await calls.renewer.beat()
    gate.cut = True
    await clock.advance(2)
    await calls.begin()
    await clock.advance(27.5)
    assert calls.left == 1, "the younger of the two"
    await clock.advance(2)
    assert calls.left == 0
    await calls.end()


@pytest.mark.parametrize("beats_from_s", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("cut_at_s", range(1, 13))
async def test_alone_it_keeps_to_its_share_before_the_store_gives_its_slots_away(
    clock: ManualClock, cut_at_s: int, beats_from_s: float
) -> None:
    """Whenever it is cut off: no later than a lease after the last renewal that the store had of it."""
    store = Store(clock)
    process, others = Process(store, 1, 4), Process(store, 0, 4)
    calls = calls_over(process, Plan(DOMAIN, pool=PoolLimit("p", 5)))
    for _ in range(5):
        await calls.begin()
    granted_count, next_beat_s = 0, beats_from_s
    for tick in range(int((cut_at_s + LEASE_S) / PING_INTERVAL_S)):
        now_s = tick * PING_INTERVAL_S
        process.way.cut = now_s >= cut_at_s
        noticed = now_s >= cut_at_s + PING_TIMEOUT_S + PING_INTERVAL_S
        if noticed:
            await process.gate.ping_redis()
        if now_s >= next_beat_s and (noticed or not process.way.cut):
            await calls.renewer.beat()
            await settled()
            next_beat_s = now_s + BEAT_S * BEAT_SPREAD
        if len(calls.running) == 5 and now_s >= cut_at_s + 6.0:  # a slot of its own, used again
            calls.running[0].cancel()
            await settled()
            await calls.begin()
        granted_count += len(await others.take_all(calls.plan))
        assert calls.left + granted_count <= 5 + 1, "one is its share"
        await clock.advance(PING_INTERVAL_S)
    assert (calls.left, granted_count) == (1, 5)
    await calls.end()


async def test_call_without_limits_has_no_slot_to_lose(clock: ManualClock) -> None:
    """A connection that is open while the store is away: its long calls outlast the outage, too."""
    process = Process(Store(clock), 0, 1)
    process.way.cut = True
    await process.gate.ping_redis()
    calls = calls_over(process, Plan(DOMAIN, pool=PoolLimit("p", 1), degraded=Degraded.OPEN))
    for _ in range(3):
        await calls.begin()
    for second in range(120):
        process.way.cut = second < 60
        await process.gate.ping_redis()
        await calls.renewer.beat()
        await clock.advance(1)
    assert not process.gate.is_degraded
    assert calls.left == 3
    await calls.end()
