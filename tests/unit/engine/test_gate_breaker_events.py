"""A breaker that opens or closes is told of once, by the process whose call did it (G6)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.errors import LimitExceededError
from fairlead.events import Event, GateBreakerClosed, GateBreakerOpened
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.support.entrances import ConnectionUnderTest, started_task

OPENED = GateBreakerOpened("acme", "stripe", "default", "api.test", 30.0)
CLOSED = GateBreakerClosed("acme", "stripe", "default", "api.test")


@pytest.fixture
def calls() -> ConnectionUnderTest:
    return ConnectionUnderTest(settings={"breaker_failures": 2, "breaker_open_s": 30.0})


async def call(calls: ConnectionUnderTest, health: DestinationHealth) -> None:
    async with calls.call_admitter.enter(calls.wish(host="api.test", wait_s=0.0)) as admission:
        admission.record_health(health)


def breaker_events(calls: ConnectionUnderTest) -> list[Event]:
    return [*calls.told.of(GateBreakerOpened), *calls.told.of(GateBreakerClosed)]


async def opened(calls: ConnectionUnderTest) -> None:
    for _ in range(2):
        await call(calls, DestinationHealth.UNHEALTHY)
    assert breaker_events(calls) == [OPENED]


async def test_opening_of_a_breaker_is_emitted_once(calls: ConnectionUnderTest) -> None:
    await call(calls, DestinationHealth.UNHEALTHY)
    assert breaker_events(calls) == []
    await call(calls, DestinationHealth.UNHEALTHY)
    with pytest.raises(LimitExceededError, match="breaker"):
        await call(calls, DestinationHealth.HEALTHY)
    assert breaker_events(calls) == [OPENED]


async def test_the_event_names_the_last_failure(calls: ConnectionUnderTest) -> None:
    async with calls.call_admitter.enter(calls.wish(host="api.test", wait_s=0.0)) as admission:
        admission.record_response(RawResponse(500))
    async with calls.call_admitter.enter(calls.wish(host="api.test", wait_s=0.0)) as admission:
        admission.record_no_response(DestinationHealth.UNHEALTHY, "timeout", sent=True, hurried=False)
    assert breaker_events(calls) == [replace(OPENED, cause="timeout")]


async def test_a_probe_that_does_well_closes_it_and_the_calls_after_it_tell_nothing(
    calls: ConnectionUnderTest,
) -> None:
    await opened(calls)
    await calls.pass_time(30.0)
    await call(calls, DestinationHealth.HEALTHY)
    await call(calls, DestinationHealth.HEALTHY)
    assert breaker_events(calls) == [OPENED, CLOSED]


async def test_a_probe_that_fails_opens_it_for_longer(calls: ConnectionUnderTest) -> None:
    await opened(calls)
    await calls.pass_time(30.0)
    await call(calls, DestinationHealth.UNHEALTHY)
    longer = GateBreakerOpened("acme", "stripe", "default", "api.test", 60.0)
    assert breaker_events(calls) == [OPENED, longer]


async def test_a_probe_that_tells_nothing_decides_nothing(calls: ConnectionUnderTest) -> None:
    await opened(calls)
    await calls.pass_time(30.0)
    await call(calls, DestinationHealth.NEUTRAL)
    assert breaker_events(calls) == [OPENED]


async def test_a_caller_who_is_cancelled_at_the_end_has_it_told_all_the_same(
    calls: ConnectionUnderTest,
) -> None:
    await call(calls, DestinationHealth.UNHEALTHY)
    inside = asyncio.Event()

    async def fails() -> None:
        async with calls.call_admitter.enter(calls.wish(host="api.test")) as admission:
            admission.record_failure()
            inside.set()
            await asyncio.Event().wait()

    caller = started_task(fails())
    await inside.wait()
    caller.cancel()
    await asyncio.wait([caller])
    await calls.renewer.drained()
    assert breaker_events(calls) == [OPENED]
