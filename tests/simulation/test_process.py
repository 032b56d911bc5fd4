"""Processes: the killed never run again and clean nothing up, the frozen go on later, the world goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextvars import Context
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import SimLoop
from tests.simulation.process import SimProcess, current


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(Random(1))
    yield loop
    loop.close()


def until(loop: SimLoop, at_s: float) -> None:
    """Run everything up to a moment."""
    loop.run_until_complete(loop.create_task(asyncio.sleep(at_s - loop.time()), context=Context()))


def begin(loop: SimLoop, process: SimProcess, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return loop.create_task(work, context=process.context())


def end(loop: SimLoop, process: SimProcess) -> None:
    for task in loop.remains_of(process):
        task._log_destroy_pending = False
        task.get_coro().close()  # type: ignore[union-attr]


def test_code_knows_whose_it_is(loop: SimLoop) -> None:
    process, results = SimProcess("p1", "host-a"), []

    async def child() -> None:
        results.append(current())

    async def work() -> None:
        await asyncio.get_running_loop().create_task(child())
        asyncio.get_running_loop().call_later(1.0, lambda: results.append(current()))
        asyncio.get_running_loop().call_later(2.0, lambda: results.append(current()), context=Context())
        await asyncio.sleep(3.0)

    begin(loop, process, work())
    until(loop, 5.0)
    assert results == [process, process, None]


def test_the_killed_run_no_more_and_clean_nothing_up(loop: SimLoop) -> None:
    process, results = SimProcess("p1", "host-a"), []

    async def work() -> None:
        try:
            results.append("begun")
            await asyncio.sleep(10.0)
            results.append("slept")
        finally:
            results.append("cleaned")

    begin(loop, process, work())
    until(loop, 5.0)
    process.remains = loop.remains_of(process)
    process.die()
    until(loop, 50.0)
    assert results == ["begun"]
    assert len(process.remains) == 1
    end(loop, process)


def test_the_frozen_go_on_where_they_stood(loop: SimLoop) -> None:
    process, results = SimProcess("p1", "host-a"), []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(1.0)
            results.append(loop.time())

    begin(loop, process, work())
    until(loop, 1.5)
    process.state = "frozen"
    until(loop, 30.0)
    assert len(results) == 1
    process.state = "running"
    handles, process.held = process.held, []
    loop.take_back(handles)
    until(loop, 40.0)
    assert results == pytest.approx([1.0, 30.0, 31.0])


def test_a_death_is_told_in_the_world_and_once() -> None:
    process, results = SimProcess("p1", "host-a"), []
    process.on_death(lambda: results.append(current()))
    process.on_death(lambda: results.append("forgotten"))()
    process.die()
    process.die()
    assert results == [None]


def test_lives_of_one_place_are_told_apart() -> None:
    first, second = SimProcess("p1", "host-a", 1), SimProcess("p1", "host-a", 2)
    assert first.identity() != second.identity()
    assert first.identity().boot_id == second.identity().boot_id
