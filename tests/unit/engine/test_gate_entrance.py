"""Who asks too fast is not served, and costs nobody anything."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.engine.ports import ConnectionKey
from fairlead.errors import LimitExceededError
from fairlead.events import TenantThrottled
from fairlead.policy.limits.refusal_throttle import MOST_REFUSED
from tests.support.entrances import Way, begun, settled


async def refused(way: Way, **wish: object) -> LimitExceededError:
    with pytest.raises(LimitExceededError, match="hint: ") as closed:
        await way.call(wait_s=0.0, **wish)
    return closed.value


async def test_100_rapid_requests_of_one_tenant_flagged_and_throttled() -> None:
    way, until = Way(settings={"concurrency_limit": 1}), asyncio.Event()
    holder = begun(way.call(until))
    await settled()
    for _ in range(MOST_REFUSED):
        assert (await refused(way)).reason == "slot"
    assert way.told.of(TenantThrottled) == [TenantThrottled("acme", "stripe", 100)]
    throttled = await refused(way)
    assert (throttled.reason, throttled.retry_after_s) == ("rapid", 1.0)
    other = replace(way.wish(wait_s=0.0), key=ConnectionKey("beta", "stripe"))
    async with way.call_admitter.enter(other):
        pass
    until.set()
    await holder
    assert (await refused(way)).reason == "rapid", "its slot is free: it is not even asked for"
    await way.clock.advance(1.0)
    await way.call(wait_s=0.0)
    assert len(way.told.of(TenantThrottled)) == 1


async def test_whether_a_refusal_would_keep_a_call_out() -> None:
    for settings in ({}, {"observe": True}):
        way = Way(settings=settings)
        assert way.call_admitter.is_limited(way.key, None, ""), "nothing is known of it yet"
        await way.call(wait_s=0.0)
        assert way.call_admitter.is_limited(way.key, None, "") is (not settings)


async def test_99_of_them_are_served_as_ever() -> None:
    way, until = Way(settings={"concurrency_limit": 1}), asyncio.Event()
    holder = begun(way.call(until))
    await settled()
    for _ in range(MOST_REFUSED - 1):
        await refused(way)
    until.set()
    await holder
    await way.call(wait_s=0.0)
    assert way.told.of(TenantThrottled) == []
