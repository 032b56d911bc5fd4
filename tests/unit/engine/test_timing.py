"""Time limits on the injected clock: what ends, what is kept, and whose cancellation it was."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.engine.base.timing import TimeLimit, gather_all, wait_event
from fairlead.testing._kit.clock import ManualClock


async def test_a_block_that_takes_too_long_is_ended() -> None:
    clock = ManualClock()
    limit = TimeLimit(clock, 5)

    async def slow() -> None:
        async with limit:
            await asyncio.Event().wait()

    task = asyncio.create_task(slow())
    await clock.wait_sleepers()
    await clock.advance(4.9)
    assert not task.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await task
    assert limit.expired


async def test_a_block_in_time_leaves_no_sleeper() -> None:
    clock = ManualClock()
    async with TimeLimit(clock, 5):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert clock.sleepers == 0


async def test_a_block_that_ends_well_after_its_limit_keeps_its_result() -> None:
    clock = ManualClock()

    async def stubborn() -> str:
        async with TimeLimit(clock, 5):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "done all the same"
        raise AssertionError

    task = asyncio.create_task(stubborn())
    await clock.wait_sleepers()
    await clock.advance(5)
    assert await task == "done all the same"
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_stays_one() -> None:
    clock = ManualClock()

    async def slow() -> None:
        async with TimeLimit(clock, 5):
            await asyncio.Event().wait()

    task = asyncio.create_task(slow())
    await clock.wait_sleepers()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_limits_nest() -> None:
    clock = ManualClock()
    log: list[str] = []

    async def nested() -> None:
        async with TimeLimit(clock, 10):
            try:
                async with TimeLimit(clock, 5):
                    await asyncio.Event().wait()
            except TimeoutError:
                log.append("inner")
            await asyncio.Event().wait()

    task = asyncio.create_task(nested())
    await clock.wait_sleepers(2)
    await clock.advance(5)
    assert log == ["inner"]
    await clock.advance(5)
    with pytest.raises(TimeoutError):
        await task


async def test_an_event_is_heard_or_not() -> None:
    clock, event = ManualClock(), asyncio.Event()
    waiting = asyncio.create_task(wait_event(event, clock, 5))
    await clock.wait_sleepers()
    await clock.advance(5)
    assert await waiting is False
    waiting = asyncio.create_task(wait_event(event, clock, 5))
    await clock.wait_sleepers()
    event.set()
    assert await waiting is True
    assert await wait_event(event, clock, 0) is True


async def test_of_several_the_first_error_is_told_once_all_have_ended() -> None:
    done: list[int] = []

    async def work(number: int, *, fails: bool = False) -> int:
        for _ in range(number):
            await asyncio.sleep(0)
        done.append(number)
        if fails:
            raise ValueError(str(number))
        return number

    assert await gather_all(work(2), work(1)) == [2, 1]
    with pytest.raises(ValueError, match="3"):
        await gather_all(work(3, fails=True), work(5), work(4, fails=True))
    assert done == [1, 2, 3, 4, 5]
