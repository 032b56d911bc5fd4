"""The manual clock: time that moves when told, in order, and never by itself."""

from __future__ import annotations

import asyncio

import pytest

from fairlead._core.clock import Clock
from fairlead.testing._kit.clock import ManualClock, SystemClock


def test_both_clocks_are_clocks() -> None:
    clocks: list[Clock] = [ManualClock(start=5.0), SystemClock()]
    assert clocks[0].monotonic() == 5.0


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.wait_sleepers()
    await clock.advance(9.999)
    assert not sleeper.done()
    await clock.advance(0.001)
    assert sleeper.done()
    assert clock.monotonic() == pytest.approx(10.0)


async def test_sleepers_wake_in_due_order_each_at_its_own_moment() -> None:
    clock, woken = ManualClock(), []

    async def sleep(name: str, delay_s: float) -> None:
        await clock.sleep(delay_s)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, delay_s in (("late", 3.0), ("early", 1.0), ("middle", 2.0), ("middle too", 2.0)):
            tasks.create_task(sleep(name, delay_s))
        await clock.wait_sleepers(4)
        await clock.advance(60)
    assert woken == [("early", 1.0), ("middle", 2.0), ("middle too", 2.0), ("late", 3.0)]
    assert clock.monotonic() == 60.0


async def test_a_loop_of_sleeps_runs_inside_one_advance() -> None:
    clock, ticks = ManualClock(), []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    ticker = asyncio.create_task(tick())
    await clock.wait_sleepers()
    await clock.advance(3.5)
    assert ticks == [1.0, 2.0, 3.0]
    ticker.cancel()


async def test_a_cancelled_sleeper_moves_no_time_and_is_not_counted() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(5))
    await clock.wait_sleepers()
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)
    assert clock.sleepers == 0
    await clock.advance(1)
    assert clock.monotonic() == 1.0


async def test_no_delay_only_yields() -> None:
    clock = ManualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0.0


async def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="hint"):
        await ManualClock().advance(-1)


async def test_with_autojump_nobody_has_to_move_it() -> None:
    clock = ManualClock(autojump_s=0)
    async with asyncio.timeout(5):
        await asyncio.gather(clock.sleep(3600), clock.sleep(7200))
    assert clock.monotonic() == 7200.0
