"""Count what hot operations cost: ``python -m tests.counts.measure`` prints one JSON object.

Nothing here is a time, so the figures do not depend on the machine. It runs in a process of its own, on
servers of its own that write no full pages and vacuum nothing by themselves, so no other test is in the
counts. Each figure is the least of several rounds, which leaves out what a heartbeat or a growing table adds
to one of them.

Keys of the object are plants, values the figures under them: ``as_is``, and one for each mistake that the
guard must find (an executor job, a statement, an index too many).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from bench.our_call import LIMITS
from bench.refresh_world import World, opened, safe
from bench.sides import started
from bench.valkey import connected as valkey
from fairlead import Fairlead, JobContext, JobRequest
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import ClaimFilter, Completed
from tests.counts.counting import ROUNDS, Figures, both
from tests.support.engine import new_job
from tests.support.servers import TEST_SETTINGS, running_servers

POLICY = "strict"
HERD = 100
ONE_BY_ONE = 10
"""Operations of a round that are made one after the other."""
SERVER_SETTINGS = {"full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "3600"}
PATIENCE_S = 10.0
"""For a herd to come together."""
SWITCH_S = 0.5
"""How long a thread may hold the interpreter: so long that only waiting hands it over, never the clock."""


# ---- refreshes ---------------------------------------------------------------------------------


class LockStep:
    """A transport under which a herd moves as one.

    All have connected before the first is marked as sent, and all have their answers before the first goes
    on, so what is shared does not depend on how fast a server answers.
    """

    def __init__(self, send: Callable[..., Awaitable[Any]], herd: int) -> None:
        self._send = send
        self._connected, self._answered = asyncio.Barrier(herd), asyncio.Barrier(herd)

    async def __call__(self, call: Any, before_sent: Callable[[], Awaitable[None]]) -> Any:
        async def in_step() -> None:
            await self._connected.wait()
            await before_sent()

        answer = await self._send(call, in_step)
        await self._answered.wait()
        return answer


@contextmanager
def held_disk(journal: Any, herd: int) -> Iterator[None]:
    """Have the disk of *journal* wait until all of a *herd* have handed over their answers.

    Then they share two commits, however fast the disk is.
    """
    handed, ready = 0, threading.Event()
    put, sync = journal._writer.put, journal._disk.sync

    def counted(job: Any) -> None:
        nonlocal handed
        handed += 1
        if handed % herd == 1:
            ready.clear()
        elif handed % herd == 0:
            ready.set()
        put(job)

    def waiting(descriptor: int) -> None:
        ready.wait(PATIENCE_S)
        sync(descriptor)

    journal._writer.put, journal._disk.sync = counted, waiting
    try:
        yield
    finally:
        ready.set()
        del journal._writer.put, journal._disk.sync


async def refresh_alone(world: World, *, calls: bool = True) -> Figures:
    """Count a refresh that nothing else goes on beside."""

    async def run_alone() -> None:
        for number in range(ONE_BY_ONE):
            await safe(world, POLICY, number)

    return await both("refresh.alone", run_alone, ONE_BY_ONE, calls=calls)


async def refresh_in_herd(world: World) -> Figures:
    """Count a refresh of a hundred that move in step."""
    transport = world.fl.runtime.http.tokens
    transport.send = LockStep(transport.send, HERD)  # type: ignore[method-assign]
    try:

        async def herd() -> None:
            await asyncio.gather(*(safe(world, POLICY, number) for number in range(HERD)))

        with held_disk(world.fl.runtime.journal, HERD):
            return await both("refresh.herd", herd, HERD)
    finally:
        del transport.send


# ---- jobs --------------------------------------------------------------------------------------


async def jobs(fl: Fairlead) -> Figures:
    """Count a job of a hundred, from its enqueue to its acknowledgement; *fl* works already."""
    runs = 0
    over = asyncio.Event()
    inner = fl.runtime.jobs.acknowledge

    async def acknowledge(outcomes: Any) -> Any:
        nonlocal runs
        done = await inner(outcomes)
        runs += len(outcomes)
        if runs >= HERD:
            over.set()
        return done

    fl.runtime.jobs.acknowledge = acknowledge  # type: ignore[method-assign]

    async def work_off() -> None:
        nonlocal runs
        runs = 0
        over.clear()
        await fl.enqueue_many(JobRequest("noop", {"n": n}, tenant=f"tenant {n % 10}") for n in range(HERD))
        await over.wait()

    try:
        return await both("job", work_off, HERD, rounds=3 * ROUNDS)
    finally:
        del fl.runtime.jobs.acknowledge


async def job_wal(fl: Fairlead, database_url: str) -> Figures:
    """Count the bytes of WAL of a claim and of a completion, for one job of a hundred."""
    store, session_id = fl.runtime.jobs, fl.runtime.heartbeat.session_id
    assert session_id is not None
    claims, completions = [], []
    observer = await asyncpg.connect(database_url)
    try:
        for _ in range(ROUNDS + 1):
            await store.enqueue(
                new_job("wal", tenant_id=f"tenant {n % 10}", queue="wal") for n in range(HERD)
            )
            wal_before = await _wal(observer)
            claimed = await store.claim(ClaimFilter(queues=("wal",)), HERD, session_id)
            between = await _wal(observer)
            await store.acknowledge([Completed(job.job_id, job.lease_id) for job in claimed])
            assert len(claimed) == HERD
            claims.append(between - wal_before)
            completions.append(await _wal(observer) - between)
    finally:
        await observer.close()
    return {
        "job.claim.wal_bytes": round(min(claims) / HERD, 3),
        "job.completion.wal_bytes": round(min(completions) / HERD, 3),
    }


async def _wal(observer: Any) -> int:
    return int(await observer.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


# ---- calls -------------------------------------------------------------------------------------


async def calls(fl: Fairlead, redis_url: str) -> Figures:
    """Count a call of the client, and the scripts of its admission."""
    async with fl.client("tenant", "calls") as api:

        async def one_by_one() -> None:
            for _ in range(ONE_BY_ONE):
                await api.get("/orders.json")

        counts = await both("call", one_by_one, ONE_BY_ONE, rounds=3 * ROUNDS)
        scripts = []
        async with valkey(redis_url) as client:
            for _ in range(ROUNDS):
                scripts_before = await _scripts(client)
                await one_by_one()
                scripts.append(await _scripts(client) - scripts_before)
    return counts | {"admission.script_calls": min(scripts) / ONE_BY_ONE}


async def _scripts(client: Any) -> int:
    command_info = await client.info("commandstats")
    return sum(
        command_info.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval", "fcall")
    )


# ---- all ---------------------------------------------------------------------------------------


@contextmanager
def planted(world: World, plant: str) -> Iterator[None]:
    """Make each refresh dearer by one *plant*."""
    store, database = world.fl.runtime.credentials, world.fl.runtime.database
    inner = store.mark_sent

    async def dearer(*args: Any) -> Any:
        if plant == "executor_job":
            await asyncio.get_running_loop().run_in_executor(None, int)
        else:
            await database.fetch(statement("server_clock"))
        return await inner(*args)

    store.mark_sent = dearer  # type: ignore[method-assign]
    try:
        yield
    finally:
        del store.mark_sent


@asynccontextmanager
async def working(fl: Fairlead) -> AsyncIterator[None]:
    """Run jobs for as long as the block lasts."""
    work = asyncio.create_task(fl.run())
    try:
        yield
    finally:
        fl.stop()
        await work


async def measured(endpoints: Endpoints, folder: Path, api_url: str) -> dict[str, Figures]:
    """Return all figures, by plant."""
    profiles = [profile_of_calls(api_url)]
    async with opened(endpoints, folder, HERD, more_profiles=profiles, declare=declare) as world:
        fl = world.fl
        await fl.connections.upsert("tenant", "calls", api_key="key", settings=LIMITS)
        as_is = await refresh_alone(world) | await refresh_in_herd(world)
        as_is |= await calls(fl, endpoints.redis_url)
        as_is |= await job_wal(fl, endpoints.database_url)
        counts = {"as_is": as_is}
        for plant in ("executor_job", "statement"):
            with planted(world, plant):
                counts[plant] = await refresh_alone(world, calls=False)
        async with working(fl):
            as_is |= await jobs(fl)
        connection = await asyncpg.connect(endpoints.database_url)
        await connection.execute("CREATE INDEX planted ON fairlead.job (lease_id)")
        await connection.close()
        counts["index"] = await job_wal(fl, endpoints.database_url)
        return counts


def declare(fl: Fairlead) -> None:
    """Have *fl* know the job that does nothing."""

    @fl.job("noop")
    async def noop(_context: JobContext, n: int) -> None:
        return


def profile_of_calls(api_url: str) -> str:
    """Return the profile of the API that is called."""
    return (
        'name = "calls"\ntitle = "calls"\nstrategy = "static_key"\nallow_http = true\n'
        f'[apis.rest]\nurl = "{api_url}"\n'
    )


async def run() -> dict[str, Figures]:
    """Start what is needed, and measure."""
    sys.setswitchinterval(SWITCH_S)
    with (
        running_servers(TEST_SETTINGS | SERVER_SETTINGS) as endpoints,
        tempfile.TemporaryDirectory() as folder,
    ):
        async with started("api", "serve", "", program="bench.call_server") as server:
            return await measured(endpoints, Path(folder), (await server.line())["url"])


if __name__ == "__main__":
    os.umask(0o077)
    print(json.dumps(asyncio.run(run()), indent=1))
