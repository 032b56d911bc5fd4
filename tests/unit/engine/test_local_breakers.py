"""A process that does not reach a destination spares itself further tries, and holds up nobody else (R50)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.limits.local_breakers import MAX_OPEN_S, LocalBreakers
from fairlead.engine.ports import AdmitRequest, Admitted, GateRefusal, RefusedBy, Release, Released
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import MICRO, BreakerRule, BucketLimit, Domain, Plan
from fairlead.testing._kit.clock import ManualClock

PLAN = Plan(Domain(("tenant", "a")), breaker=BreakerRule("connection|host", failures=3))
WITH_BUCKET = Plan(PLAN.domain, breaker=PLAN.breaker, buckets=(BucketLimit("b", 1, 0.001),))


@dataclass
class Fleet:
    """Two processes at one gate."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        def now_us() -> int:
            return round(self.clock.monotonic() * MICRO)

        gate = LocalGate(now_us, birth_us=now_us())
        self.sick, self.well = (LocalBreakers(gate, reporter=number, clock=self.clock) for number in (2, 3))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


async def call(process: LocalBreakers, health: DestinationHealth, plan: Plan = PLAN) -> Released:
    admitted = await process.admit(AdmitRequest(plan))
    assert isinstance(admitted, Admitted), admitted
    return await process.release(Release(admitted, health))


async def opened(process: LocalBreakers) -> None:
    for _ in range(2):
        assert (await call(process, DestinationHealth.UNREACHED)).opened_s is None
    assert (await call(process, DestinationHealth.UNREACHED)).opened_s == MAX_OPEN_S


async def test_process_that_reaches_nothing_is_refused_and_the_other_is_not(fleet: Fleet) -> None:
    await opened(fleet.sick)
    assert await fleet.sick.admit(AdmitRequest(PLAN)) == GateRefusal(RefusedBy.BREAKER, MAX_OPEN_S)
    await call(fleet.well, DestinationHealth.HEALTHY)


async def test_local_breaker_is_decided_by_one_probe(fleet: Fleet) -> None:
    await opened(fleet.sick)
    await fleet.clock.advance(MAX_OPEN_S)
    probe = await fleet.sick.admit(AdmitRequest(PLAN))
    assert isinstance(probe, Admitted)
    assert isinstance(await fleet.sick.admit(AdmitRequest(PLAN)), GateRefusal)
    assert (await fleet.sick.release(Release(probe, DestinationHealth.UNREACHED))).opened_s == MAX_OPEN_S
    await fleet.clock.advance(MAX_OPEN_S)
    assert (await call(fleet.sick, DestinationHealth.UNHEALTHY)).closed, (
        "any response shows that it is reached"
    )
    for _ in range(9):
        await call(fleet.sick, DestinationHealth.HEALTHY)


async def test_probe_that_is_not_sent_makes_room_for_the_next(fleet: Fleet) -> None:
    await opened(fleet.sick)
    await fleet.clock.advance(MAX_OPEN_S)
    refused = await fleet.sick.admit(AdmitRequest(WITH_BUCKET))
    assert isinstance(refused, GateRefusal)
    assert refused.by is RefusedBy.BUCKET
    assert (await call(fleet.sick, DestinationHealth.NEUTRAL)).opened_s is None
    cut = asyncio.ensure_future(fleet.sick.admit(AdmitRequest(PLAN)))
    cut.cancel()
    await asyncio.wait({cut})
    assert (await call(fleet.sick, DestinationHealth.HEALTHY)).closed


async def test_end_tells_what_opened_and_closed(fleet: Fleet) -> None:
    results: list[Released | Exception] = []
    for health in (*[DestinationHealth.UNREACHED] * 3, DestinationHealth.HEALTHY):
        admitted = await fleet.sick.admit(AdmitRequest(PLAN))
        assert isinstance(admitted, Admitted)
        fleet.sick.release_soon(Release(admitted, health), results.append)
        if health is DestinationHealth.UNREACHED and len(results) == 3:
            await fleet.clock.advance(MAX_OPEN_S)
    assert [(result.opened_s, result.closed) for result in results if isinstance(result, Released)] == [
        (None, False), (None, False), (MAX_OPEN_S, False), (None, True),
    ]  # fmt: skip
