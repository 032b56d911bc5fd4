"""Plain functions on threads: used again, bounded, and never in anybody's way."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fairlead.app.threads import Threads


def here() -> int:
    return threading.get_ident()


async def test_a_thread_is_used_again() -> None:
    threads = Threads()
    assert await threads.run(here) == await threads.run(here) != threading.get_ident()
    threads.close()


async def test_thread_raises_even_system_exit_to_its_caller() -> None:
    threads = Threads()

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await threads.run(leave)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: next(iter(())))
    threads.close()


async def test_cancelled_thread_runs_until_it_returns_or_all_are_closed() -> None:
    threads, go = Threads(), threading.Event()
    returns = asyncio.create_task(threads.run(lambda: go.wait(20)))
    await asyncio.sleep(0)
    for _ in range(2):
        returns.cancel()
        assert not (await asyncio.wait((returns,), timeout=0))[0]
    go.set()
    assert await returns
    go.clear()
    leave_task = asyncio.create_task(threads.run(lambda: go.wait(20)))
    await asyncio.sleep(0)
    leave_task.cancel()
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises(asyncio.CancelledError):
        await leave_task
    go.set()


async def test_closing_ends_the_threads_that_have_nothing_to_do_and_waits_for_none() -> None:
    threads, go = Threads(), threading.Event()
    idle = await threads.run(here)
    busy = asyncio.create_task(threads.run(lambda: (go.wait(20), here())))
    other = asyncio.create_task(threads.run(here))
    await other
    threads.close()
    go.set()
    _, last = await busy
    while {idle, last} & {thread.ident for thread in threading.enumerate()}:
        await asyncio.sleep(0)


def test_a_loop_that_is_gone_is_told_nothing() -> None:
    threads, go, ended = Threads(), threading.Event(), threading.Event()

    def work() -> None:
        threading.current_thread().name = "left behind"
        go.wait(20)
        ended.set()

    async def leave() -> None:
        task = asyncio.create_task(threads.run(work))
        await asyncio.sleep(0)
        threads.close()
        task.cancel()

    asyncio.run(leave())
    go.set()
    assert ended.wait(20)
    for thread in threading.enumerate():
        if thread.name == "left behind":
            thread.join(20)
            assert not thread.is_alive()
