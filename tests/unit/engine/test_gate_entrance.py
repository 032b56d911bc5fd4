"""Who asks too fast is not served, and costs nobody anything."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.engine.ports import ConnectionKey
from fairlead.errors import LimitExceededError
from fairlead.events import TenantThrottled
from fairlead.policy.limits.refusal_throttle import MAX_REFUSED
from tests.support.entrances import ConnectionUnderTest, settled, started_task


async def refused(calls: ConnectionUnderTest, **fields: object) -> LimitExceededError:
    with pytest.raises(LimitExceededError, match="hint: ") as closed:
        await calls.call(wait_s=0.0, **fields)
    return closed.value


async def test_100_rapid_requests_of_one_tenant_flagged_and_throttled() -> None:
    calls, until = ConnectionUnderTest(settings={"concurrency_limit": 1}), asyncio.Event()
    holder = started_task(calls.call(until))
    await settled()
    for _ in range(MAX_REFUSED):
        assert (await refused(calls)).reason == "slot"
    assert calls.told.of(TenantThrottled) == [TenantThrottled("acme", "stripe", 100)]
    throttled = await refused(calls)
    assert (throttled.reason, throttled.retry_after_s) == ("rapid", 1.0)
    other = replace(calls.wish(wait_s=0.0), key=ConnectionKey("beta", "stripe"))
    async with calls.call_admitter.enter(other):
        pass
    until.set()
    await holder
    assert (await refused(calls)).reason == "rapid", "its slot is free: it is not even asked for"
    await calls.clock.advance(1.0)
    await calls.call(wait_s=0.0)
    assert len(calls.told.of(TenantThrottled)) == 1


async def test_whether_a_refusal_would_keep_a_call_out() -> None:
    for settings in ({}, {"observe": True}):
        calls = ConnectionUnderTest(settings=settings)
        assert calls.call_admitter.is_limited(calls.key, None, ""), "nothing is known of it yet"
        await calls.call(wait_s=0.0)
        assert calls.call_admitter.is_limited(calls.key, None, "") is (not settings)


async def test_99_of_them_are_served_as_ever() -> None:
    calls, until = ConnectionUnderTest(settings={"concurrency_limit": 1}), asyncio.Event()
    holder = started_task(calls.call(until))
    await settled()
    for _ in range(MAX_REFUSED - 1):
        await refused(calls)
    until.set()
    await holder
    await calls.call(wait_s=0.0)
    assert calls.told.of(TenantThrottled) == []
