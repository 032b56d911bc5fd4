"""The loop: virtual time, picks by the draw, the same trace for the same seed, and no way to the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import Deadlock, SimLoop, Spinning, Stopped


def run(seed: int, work: Callable[[], Coroutine[Any, Any, Any]], **options: Any) -> tuple[Any, SimLoop]:
    loop = SimLoop(Random(f"{seed}:sched"), **options)
    try:
        return loop.run_until_complete(loop.create_task(work())), loop
    finally:
        loop.close()


async def order_of_three() -> list[str]:
    found_names: list[str] = []

    async def note(name: str) -> None:
        await asyncio.sleep(1.0)
        found_names.append(name)

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(note(name))
    return found_names


def test_time_jumps_to_what_is_due_next() -> None:
    async def sleep_long() -> float:
        start_at = asyncio.get_running_loop().time()
        await asyncio.sleep(3600.0)
        return asyncio.get_running_loop().time() - start_at

    took_s, loop = run(1, sleep_long)
    assert took_s == pytest.approx(3600.0)
    assert loop.steps < 10


def test_ready_callbacks_run_in_any_order_that_the_seed_draws() -> None:
    orders = {"".join(run(seed, order_of_three)[0]) for seed in range(60)}
    assert orders == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_the_same_seed_takes_the_same_steps() -> None:
    traces = [run(7, order_of_three)[1].trace for _ in range(2)]
    assert traces[0] == traces[1]
    assert len({run(seed, order_of_three)[1].trace for seed in range(20)}) > 10


def test_without_chance_the_oldest_runs_first() -> None:
    for seed in range(20):
        found_names, _ = run(seed, order_of_three, fifo=((0, 1000),))
        assert found_names == ["a", "b", "c"]


def test_sets_of_tasks_are_the_same_in_each_run() -> None:
    async def numbers() -> list[int]:
        tasks = [asyncio.ensure_future(asyncio.sleep(0)) for _ in range(50)]
        done, _ = await asyncio.wait(tasks)
        return [hash(task) for task in done]

    assert run(3, numbers)[0] == run(3, numbers)[0]


def test_nothing_ready_and_nothing_due_is_a_deadlock() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    loop = SimLoop(Random(1))
    task = loop.create_task(wait_for_nothing())
    with pytest.raises(Deadlock, match="nothing can run"):
        loop.run_until_complete(task)
    task._log_destroy_pending = False
    loop.close()
    task.get_coro().close()


def test_steps_without_time_end_as_spinning() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    loop = SimLoop(Random(1))
    task = loop.create_task(spin())
    with pytest.raises(Spinning):
        loop.run_until_complete(task)
    task._log_destroy_pending = False
    loop.close()
    task.get_coro().close()


def test_waits_too_short_to_be_added_to_the_time_end_all_the_same() -> None:
    async def wait_out(deadline_s: float) -> None:
        while (left_s := deadline_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=left_s / 2)

    _, loop = run(1, lambda: wait_out(1e6))
    assert loop.steps < 1000


def test_loop_can_be_ended_after_any_step() -> None:
    loop = SimLoop(Random(1))
    loop.after_step = lambda: loop.steps == 5
    task = loop.create_task(order_of_three())
    with pytest.raises(Stopped):
        loop.run_until_complete(task)
    assert loop.steps == 5
    assert len(loop.last) == 5
    for leftover in asyncio.all_tasks(loop):
        leftover._log_destroy_pending = False
    loop.close()


def test_thread_work_runs_in_a_step() -> None:
    async def ask() -> int:
        return await asyncio.to_thread(lambda: 42)

    assert run(1, ask)[0] == 42


@pytest.mark.parametrize(
    "action",
    [
        lambda loop: loop.create_connection(asyncio.Protocol, "127.0.0.1", 1),
        lambda loop: loop.getaddrinfo("localhost", 80),
        lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
        lambda loop: loop.add_signal_handler(15, print),
        lambda loop: loop.add_reader(0, print),
    ],
    ids=["socket", "names", "process", "signal", "file"],
)
def test_the_machine_is_not_there(action: Callable[[SimLoop], object]) -> None:
    async def ask() -> None:
        action(asyncio.get_running_loop())  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="in a simulation"):
        run(1, ask)


def test_an_error_that_nobody_handles_is_kept() -> None:
    async def fail_beside() -> None:
        def fail() -> None:
            raise ValueError("beside")

        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1.0)

    assert "beside" in run(1, fail_beside)[1].complaints[0]
