"""Retries never become the load: a fifth of the calls in flight and of those sent, and three always (G7)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import Rescheduled
from fairlead.errors import LimitExceededError
from fairlead.events import GateWouldRefuse
from tests.support.engine import IDS, a_job, half
from tests.support.entrances import ConnectionUnderTest, settled, started_task

WIDE = {"calls": {"requests": {"capacity": 10_000.0, "per_s": 10_000.0}}}
CALL_S = 5.0


class Storm:
    """Calls that all fail, and are all tried again."""

    def __init__(self, **settings: object) -> None:
        self.way = ConnectionUnderTest(settings=WIDE | settings)
        self.calls = self.retries = self.most_retries = self.done = 0

    async def first(self, until: asyncio.Event) -> None:
        """A call that fails at once with all others, and is tried until it is let through."""
        await self.way.call(until)
        while True:
            try:
                await self.again()
            except LimitExceededError as refused:
                await self.way.clock.sleep(refused.retry_after_s or 0.0)
            else:
                return

    async def again(self) -> None:
        async with self.way.call_admitter.enter(self.way.wish(retry=True)):
            self.retries += 1
            self.most_retries = max(self.most_retries, self.retries)
            await self.way.clock.sleep(CALL_S)
            self.retries -= 1
            self.done += 1


@pytest.mark.parametrize(("beside", "most"), [(0, 3), (200, 50)])
async def test_100_calls_fail_at_once_and_all_retry(beside: int, most: int) -> None:
    """Three at a time; beside 200 others fifty, a fifth of all."""
    storm, fail, end = Storm(), asyncio.Event(), asyncio.Event()
    others = [started_task(storm.way.call(end)) for _ in range(beside)]
    calls = [started_task(storm.first(fail)) for _ in range(100)]
    await settled()
    fail.set()
    for _ in range(600):
        await storm.way.clock.advance(1)
    assert (storm.done, storm.most_retries) == (100, most)
    end.set()
    await asyncio.gather(*calls, *others)


async def test_first_attempts_are_never_refused_for_it() -> None:
    storm, until = Storm(), asyncio.Event()
    retries = [started_task(storm.again()) for _ in range(3)]
    await settled()
    with pytest.raises(LimitExceededError, match=r"acme.*stripe.*hint: wait") as refused:
        await storm.way.call(retry=True)
    assert (refused.value.reason, refused.value.retry_after_s) == ("retries", 1.5)
    until.set()
    await storm.way.call(until)
    await storm.way.clock.advance(CALL_S)
    await asyncio.gather(*retries)
    retry = started_task(storm.again())
    await storm.way.clock.advance(CALL_S)
    await retry


async def test_retries_that_stand_in_line_count() -> None:
    """Else those that wait for a slot would all be let through together."""
    storm, until = Storm(concurrency_limit=1), asyncio.Event()
    holder = started_task(storm.way.call(until))
    await settled()
    waiting = [started_task(storm.way.call(retry=True, wait_s=60.0)) for _ in range(3)]
    await settled()
    with pytest.raises(LimitExceededError) as refused:
        await storm.way.call(retry=True, wait_s=0.0)
    assert refused.value.reason == "retries"
    waiting[0].cancel()
    await settled(waiting[0].done)
    await storm.way.clock.advance(1)  # what a second lets through is counted when it asks
    waiting[0] = started_task(storm.way.call(retry=True, wait_s=60.0))
    await settled()
    until.set()
    await asyncio.gather(holder, *waiting)


async def test_retries_that_are_over_at_once_are_held_to_a_share_too() -> None:
    """What is in flight says nothing of them: each has ended before the next one asks."""
    storm, done = Storm(), []
    for _ in range(10):
        for _ in range(100):
            await storm.way.call()
        done.append(0)
        for _ in range(100):
            with suppress(LimitExceededError):
                await storm.way.call(retry=True)
                done[-1] += 1
        await storm.way.clock.advance(1)
    assert done == [3] + 9 * [15]
    await storm.way.clock.advance(5)
    for _ in range(3):
        await storm.way.call(retry=True)


async def test_observed_retry_is_reported_and_not_refused() -> None:
    storm = Storm(observe=True)
    retries = [started_task(storm.again()) for _ in range(5)]
    await settled()
    assert storm.retries == 5
    events = storm.way.told.of(GateWouldRefuse)
    assert [(event.reason, event.retry_after_s) for event in events] == [("retries", 1.5)] * 2
    await storm.way.clock.advance(CALL_S)
    await asyncio.gather(*retries)


@pytest.mark.parametrize(("attempt", "refused"), [(1, False), (2, True)])
async def test_a_job_s_later_attempts_are_retries(attempt: int, refused: bool) -> None:
    """Such a job keeps its place and burns no attempt."""
    storm = Storm()

    async def work(context: JobContext) -> None:
        await storm.way.call()

    executor = Executor(
        [Handler("work", work)], clock=storm.way.clock, draw=half, ids=IDS, emit=storm.way.told
    )
    retries = [started_task(storm.again()) for _ in range(3)]
    await settled()
    job = a_job(attempt=attempt, provider="stripe", group_key="stripe/default")
    outcome = await executor.run(job)
    assert isinstance(outcome, Rescheduled) is refused
    if isinstance(outcome, Rescheduled):
        assert outcome.failure is None
    await storm.way.clock.advance(CALL_S)
    await asyncio.gather(*retries)
