"""A side in its own process: ``python -m bench.child MODULE ACT URL OPTIONS`` does one thing and exits."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

import asyncpg

from bench.sides import Side, SideFailedError, SkippedError, Watch, samples

WARM_UP = 20
PATIENCE_S = 30.0
"""Limit for a worker to start, connect and run its first job."""
LOOK_S = 0.005


def say(**fields: Any) -> None:
    """Print one line for the benchmark."""
    print(json.dumps(fields), flush=True)


async def _prepare(side: Side, url: str, _options: Mapping[str, Any]) -> None:
    await side.prepare(url)
    say(
        version=metadata.version(side.PACKAGE) if side.PACKAGE else None,
        settings={"loop": side.LOOP, **side.SETTINGS},
        open_sql=side.OPEN,
    )


async def _enqueue(side: Side, url: str, options: Mapping[str, Any]) -> None:
    """Enqueue *singles* one after the other, then *bulk* at once, and print jobs per second of both."""
    singles, bulk = samples(options["singles"]), samples(options["bulk"], first=options["singles"])
    async with side.producer(url) as producer:
        for job in samples(WARM_UP):
            await producer.enqueue_one(job)
        await producer.enqueue_many(samples(WARM_UP))
        gc.collect()
        start_mono = time.perf_counter()
        for job in singles:
            await producer.enqueue_one(job)
        between = time.perf_counter()
        await producer.enqueue_many(bulk)
        ended = time.perf_counter()
    say(one_per_s=len(singles) / (between - start_mono), many_per_s=len(bulk) / (ended - between))


async def _drain(side: Side, url: str, options: Mapping[str, Any]) -> None:
    """Drain the backlog and print the jobs and the seconds from the first start to the last stored end.

    After *for_s* seconds the worker is stopped, and the ends that are stored by then count.
    """
    watch, total = Watch(), options["jobs"]
    observer = await asyncpg.connect(url, server_settings={"search_path": "fairlead, public"})
    gc.collect()
    async with _working(side, url, watch, options) as worker:
        await _until(lambda: watch.runs > 0, PATIENCE_S, worker)
        if not watch.runs:
            raise SideFailedError(f"no job has begun within {PATIENCE_S:g} s")
        await _until(lambda: watch.runs >= total, options["for_s"], worker)
        late = watch.runs < total
        while (open_jobs := await observer.fetchval(side.OPEN)) and not late:
            await _until(lambda: False, LOOK_S, worker)
        took_s = time.perf_counter() - watch.first_at
    sizes = [jobs for _, _, jobs in watch.claims if jobs]
    say(jobs=total - open_jobs, took_s=took_s, batch=sum(sizes) / len(sizes) if sizes else None)


async def _serve(side: Side, url: str, options: Mapping[str, Any]) -> None:
    """Work until standard input is closed. Print the runs each second and the claims at the end."""
    watch = Watch()
    async with _working(side, url, watch, options) as worker:
        await _each_second(lambda: {"runs": watch.runs}, worker)
    say(claims=watch.claims)


async def _load(side: Side, url: str, options: Mapping[str, Any]) -> None:
    """Enqueue *rate* jobs a second, in a hundred batches, until standard input is closed."""
    rate, sent = options["rate"], 0
    step = max(1, rate // 100)
    async with side.producer(url) as producer:
        start_mono = time.perf_counter()

        async def offer() -> None:
            nonlocal sent
            while True:  # late batches are caught up, so the load does not depend on the queue's speed
                due = int((time.perf_counter() - start_mono) * rate) // step * step
                if due > sent:
                    await producer.enqueue_many(samples(due - sent, first=sent))
                    sent = due
                await asyncio.sleep(step / rate / 2)

        offering = asyncio.create_task(offer())
        try:
            await _each_second(lambda: {"sent": sent}, offering)
        finally:
            await _cancelled(offering)
        say(sent=sent)


async def _each_second(fields: Callable[[], dict[str, Any]], task: asyncio.Task[None]) -> None:
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while True:
        say(at=time.perf_counter(), **fields())
        await asyncio.wait((ended, task), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        if ended.done():
            return


@asynccontextmanager
async def _working(
    side: Side, url: str, watch: Watch, options: Mapping[str, Any]
) -> AsyncIterator[asyncio.Task[None]]:
    worker = asyncio.create_task(side.work(url, watch, options))
    try:
        yield worker
    finally:
        await _cancelled(worker)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,), timeout=5.0)


async def _until(reached: Callable[[], bool], limit_s: float, worker: asyncio.Task[None]) -> None:
    """Return once *reached* or after *limit_s*. Raise the error of a worker that ended."""
    ends = time.perf_counter() + limit_s
    while not reached() and time.perf_counter() < ends:
        if worker.done():
            await worker
            raise SideFailedError("the worker has ended by itself")
        await asyncio.sleep(LOOK_S)


ACTS: Mapping[str, Callable[[Side, str, Mapping[str, Any]], Coroutine[Any, Any, None]]] = {
    "prepare": _prepare,
    "enqueue": _enqueue,
    "drain": _drain,
    "serve": _serve,
    "load": _load,
}


def main(module: str, act: str, url: str, options: str) -> None:
    """Do one thing, then exit at once, even if threads still run."""
    try:
        side: Side = importlib.import_module(module)
        with asyncio.Runner(loop_factory=_loop_factory(side.LOOP)) as runner:
            runner.run(ACTS[act](side, url, json.loads(options)))
    except ImportError as error:
        say(skipped=f"{error.name} is not installed")
    except SkippedError as error:
        say(skipped=str(error))
    sys.stdout.flush()
    os._exit(0)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "asyncio":
        return None
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    main(*sys.argv[1:])
