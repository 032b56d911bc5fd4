"""What bounds a call from outside: people's switches, its deadline where others are slow, its retries."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.calls.open_breakers import CACHE_S, OpenBreakerCache
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.errors import CallFailedError, DeadlineExceededError, LimitExceededError
from fairlead.policy.tokens.token import PublicToken
from fairlead.testing import ManualClock
from tests.unit.engine.test_pipeline import GET, KEY, World, answer

OPEN = LimitExceededError("open", tenant="acme", provider="stripe", retry_after_s=600.0, reason="breaker")


async def test_an_open_breaker_is_known_for_a_moment_only() -> None:
    """So that people who reset it are heeded everywhere within 2 s."""
    world = World([OPEN, answer(200)])
    pipeline = world.pipeline()
    for _ in range(3):
        with pytest.raises(LimitExceededError) as closed:
            await pipeline.send(GET)
    assert closed.value.retry_after_s == 600.0
    assert len(world.wishes) == 1
    await world.clock.advance(CACHE_S)
    assert (await pipeline.send(GET)).attempts == 1
    assert CACHE_S <= 1.0


async def test_limits_that_are_switched_off_refuse_nothing_at_once() -> None:
    world = World([OPEN, answer(200)])
    pipeline = world.pipeline()
    with pytest.raises(LimitExceededError):
        await pipeline.send(GET)
    world.limited = False
    assert (await pipeline.send(GET)).attempts == 1


def test_a_breaker_that_is_due_sooner_is_forgotten_then() -> None:
    clock = ManualClock()
    breakers = OpenBreakerCache(clock)
    breakers.record(KEY, "h", LimitExceededError("open", retry_after_s=0.0, reason="breaker"))
    breakers.check(KEY, "h", lambda: True)
    breakers.record(KEY, "h", LimitExceededError("no room", retry_after_s=9.0, reason="rate"))
    breakers.check(KEY, "h", lambda: True)


class Slow(World):
    """An issuer that takes a minute."""

    async def token(self, key: ConnectionKey) -> PublicToken:
        await self.clock.sleep(50.0)
        return await super().token(key)

    async def refreshed_after(self, key: ConnectionKey, than: int | None) -> PublicToken:
        return await self.token(key)


async def test_no_call_waits_for_its_credential_past_its_deadline() -> None:
    world = Slow([answer(200)])
    with pytest.raises(DeadlineExceededError, match="credential") as refused:
        await world.call(replace(GET, deadline_s=4.0))
    assert (world.clock.monotonic(), refused.value.tenant) == (4.0, "acme")
    assert (world.sent, world.asked_tokens) == ([], 0)


async def test_no_call_waits_for_a_newer_credential_past_its_deadline() -> None:
    world = Slow([answer(401), answer(200)])
    world.cached = lambda key: PublicToken(_secret(), "Bearer", None, None, None, 1)  # type: ignore[method-assign]
    with pytest.raises(DeadlineExceededError, match="newer credential"):
        await world.call(replace(GET, deadline_s=4.0))
    assert world.clock.monotonic() == 4.0
    world.answers, world.sent = [answer(502), answer(401), answer(200)], []
    with pytest.raises(CallFailedError) as failed:
        await world.call(replace(GET, deadline_s=8.0))
    assert world.clock.monotonic() == 12.0
    assert isinstance(failed.value.__cause__, DeadlineExceededError)
    assert len(world.sent) == 2


def _secret() -> Any:
    from fairlead._core.secret import Secret

    return Secret("t1")


async def test_a_credential_that_is_at_hand_is_not_asked_for() -> None:
    world = Slow([answer(200)])
    world.cached = lambda key: PublicToken(_secret(), "Bearer", None, None, None, 1)  # type: ignore[method-assign]
    await world.call(GET)
    assert world.clock.monotonic() == 0.0


class LazyResponse(World):
    """A database that takes a minute to tell of a connection."""

    async def connection(self, key: ConnectionKey) -> Connection:
        await self.clock.sleep(90.0)
        return await super().connection(key)


@pytest.mark.parametrize(("deadline_s", "ends_s"), [(4.0, 4.0), (None, 60.0)])
async def test_no_call_waits_for_its_connection_past_its_deadline(
    deadline_s: float | None, ends_s: float
) -> None:
    world = LazyResponse([answer(200)])
    with pytest.raises(DeadlineExceededError, match="connection"):
        await world.call(replace(GET, deadline_s=deadline_s))
    assert world.clock.monotonic() == ends_s


async def test_in_a_job_no_connection_is_waited_for_past_the_time_of_the_job() -> None:
    world = LazyResponse([answer(200)])
    job: Any = SimpleNamespace(attempt=1, job_id=UUID(int=9))
    running = current_job.set(JobContext(job, lambda: 20.0 - world.clock.monotonic(), timeout_s=20.0))
    try:
        with pytest.raises(DeadlineExceededError) as refused:
            await world.call(GET)
    finally:
        current_job.reset(running)
    assert (world.clock.monotonic(), refused.value.retry_after_s) == (15.0, None)


async def test_wait_before_the_pipeline_counts_against_the_deadline() -> None:
    world = World([answer(200)], clock=ManualClock(100.0, autojump_s=0.0))
    with pytest.raises(DeadlineExceededError):
        await world.call(replace(GET, deadline_s=4.0, started_mono=95.0))
    response = await world.call(replace(GET, deadline_s=4.0, started_mono=97.0))
    assert (response.waited_s, world.sent[0].deadline_s) == (3.0, 1.0)


async def test_call_cancelled_in_its_wait_for_a_credential_is_cancelled() -> None:
    world = Slow([answer(200)], clock=ManualClock())
    task = asyncio.create_task(world.pipeline().send(GET))
    await world.clock.wait_sleepers(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_all_retries_of_a_call_end_within_their_bound() -> None:
    """Each delay alone would fit into it, and the deadline is far away."""
    world = World([answer(429, retry_after="110")] * 9)
    with pytest.raises(CallFailedError, match="no time left"):
        await world.call(replace(GET, deadline_s=3000.0))
    assert 200 < world.clock.monotonic() < 300
    assert len(world.sent) == 3
