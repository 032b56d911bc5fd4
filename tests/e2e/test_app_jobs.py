"""Jobs through the Python door on a real database: declared, stored, run, waited for; blocking code too."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import asyncpg
import psycopg
import pytest

from fairlead import EnqueuedJob, Fairlead, JobContext, JobRequest
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.errors import (
    InvalidConfigError,
    InvalidInputError,
    JobFailedError,
    JobNotFinishedError,
    RequestRejectedError,
)
from tests.support.cli import MASTER_KEY, ROOT
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows

pytestmark = pytest.mark.slow

SETTINGS = """
home = "{home}"
worker.poll_s = 0.05
worker.lease_s = 5
"""


@pytest.fixture
def environ(database_settings: DatabaseSettings, tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "fairlead.toml"
    file.write_text(SETTINGS.format(home=tmp_path / "home"))
    return {
        "DATABASE_URL": database_settings.dsn,
        "FAIRLEAD_MASTER_KEY": MASTER_KEY,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
        "FAIRLEAD_CONFIG": str(file),
    }


@pytest.fixture
def fl(environ: dict[str, str]) -> Fairlead:
    return Fairlead.from_env(environ)


@asynccontextmanager
async def at_work(fl: Fairlead) -> AsyncIterator[Fairlead]:
    """Open, and running jobs."""
    async with fl:
        working = asyncio.create_task(fl.run())
        try:
            async with asyncio.timeout(30):
                yield fl
        finally:
            fl.stop()
            await working


async def test_a_unique_job_is_enqueued_while_its_key_runs(fl: Fairlead, database: Database) -> None:
    """The second one sees what the first one read too early; unless its caller chose otherwise."""
    stock, started, go_on = {"sku": 1}, asyncio.Event(), asyncio.Event()

    @fl.job(queue="stock")
    async def publish(ctx: JobContext) -> int:
        read = stock["sku"]
        started.set()
        await go_on.wait()
        return read

    async with at_work(fl):
        first = await publish.enqueue(tenant="acme", unique_key="sku")
        await started.wait()
        stock["sku"] = 2
        second = await publish.enqueue(tenant="acme", unique_key="sku")
        third = await asyncio.to_thread(fl.sync.enqueue, publish, tenant="acme", unique_key="sku")
        async with database.transaction() as transaction:
            ours = raw_connection_of(transaction)
            fourth = await publish.enqueue(
                tenant="acme", unique_key="sku", unique_while="open", transaction=ours
            )
        go_on.set()
        assert await fl.result(first, timeout_s=20) == 1
        assert await fl.result(second, timeout_s=20) == 2
        assert [job.key_state for job in (first, second, third, fourth)] == [
            "none",
            "running",
            "waiting",
            "waiting",
        ]
        assert second != first
        assert second == third == fourth
        assert isinstance(pickle.loads(pickle.dumps(third)), EnqueuedJob)
        with pytest.raises(InvalidInputError, match="did you mean waiting"):
            await publish.enqueue(tenant="acme", unique_key="sku", unique_while="wait")
    await asyncio.to_thread(fl.sync.close)


async def kinds(database: Database) -> list[str]:
    jobs_found = await rows(database, "SELECT kind FROM job WHERE tenant_id <> 'fairlead' ORDER BY kind")
    return [row["kind"] for row in jobs_found]


async def test_a_job_is_declared_stored_run_and_waited_for(fl: Fairlead) -> None:
    threads = []

    @fl.job
    async def add(ctx: JobContext, first: int, other: int = 1) -> int:
        return first + other

    @fl.job
    def plain(ctx: JobContext, word: str) -> str:
        threads.append(threading.current_thread().name)
        return word.upper()

    @fl.job
    async def refused(ctx: JobContext) -> None:
        raise RequestRejectedError("422: no such item")

    async with at_work(fl):
        assert await fl.result(await add.enqueue(41, tenant="acme"), timeout_s=20) == 42
        assert await fl.result(await plain.enqueue(word="a", tenant="acme"), timeout_s=20) == "A"
        assert threads == ["fairlead-handler"]
        with pytest.raises(JobFailedError, match="422: no such item") as failed:
            await fl.result(await refused.enqueue(tenant="acme"), timeout_s=20)
        assert failed.value.reason == "request_rejected"
        with pytest.raises(JobNotFinishedError, match="scheduled"):
            await fl.result(await add.enqueue(1, tenant="acme", delay_s=60), timeout_s=0.1)


async def test_a_job_may_wait_for_another_without_keeping_a_worker(fl: Fairlead) -> None:
    """JobNotFinishedError is a refusal that names its time: the one that waits is snoozed, no attempt burnt."""

    @fl.job
    async def child(ctx: JobContext) -> str:
        return "grown"

    @fl.job
    async def parent(ctx: JobContext) -> str:
        if not ctx.args.get("child"):
            return "none"
        return f"{await fl.result(UUID(ctx.args['child']))} at attempt {ctx.attempt}"

    async with at_work(fl):
        child_id = await child.enqueue(tenant="acme", delay_s=0.2)
        parent_id = await fl.enqueue("parent", {"child": str(child_id)}, tenant="acme")
        assert await fl.result(parent_id, timeout_s=20) == "grown at attempt 1"


async def test_inside_a_transaction_it_is_there_with_the_commit(
    fl: Fairlead, database: Database, database_settings: DatabaseSettings
) -> None:
    @fl.job
    async def keep_result(ctx: JobContext, number: int) -> int:
        return number

    theirs = await asyncpg.connect(database_settings.dsn)
    transaction = theirs.transaction()
    await transaction.start()
    await keep_result.enqueue(1, tenant="acme", transaction=theirs)  # it needs the settings alone
    await transaction.rollback()
    async with at_work(fl):
        async with theirs.transaction():
            first = await keep_result.enqueue(2, tenant="acme", transaction=theirs)
            second = await keep_result.for_tenant("acme", transaction=theirs).enqueue(3)
            (third,) = await fl.enqueue_many([keep_result.for_tenant("acme").request(4)], transaction=theirs)
            assert await kinds(database) == []
        async with await psycopg.AsyncConnection.connect(database_settings.dsn) as other:
            fourth = await fl.enqueue("keep_result", {"number": 5}, tenant="acme", transaction=other)
        results = [await fl.result(job, timeout_s=20) for job in (first, second, third, fourth)]
        assert results == [2, 3, 4, 5]
    await theirs.close()


async def test_schedules_are_stored_at_start(fl: Fairlead, database: Database) -> None:
    fired = asyncio.Event()

    @fl.cron("@every 100ms", name="often", jitter_s=0)
    async def beat(ctx: JobContext) -> None:
        fired.set()

    fl.schedule("nightly", "0 3 * * *", beat, timezone="Europe/Madrid", tenant="acme", paused=True)
    async with at_work(fl):
        await fired.wait()
    jobs_found = await rows(
        database,
        "SELECT name, kind, timezone, tenant_id, paused FROM schedule WHERE kind = 'beat' ORDER BY name",
    )
    assert [tuple(row.values()) for row in jobs_found] == [
        ("nightly", "beat", "Europe/Madrid", "acme", True),
        ("often", "beat", "UTC", "fairlead", False),
    ]


async def test_modules_with_handlers_are_imported_when_it_opens(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_fl.py").write_text(
        f"from fairlead import Fairlead\nfl = Fairlead.from_env({environ!r}, include=['shop_jobs'])\n"
    )
    (tmp_path / "shop_jobs.py").write_text(
        "from shop_fl import fl\n\n@fl.job\nasync def hello(ctx):\n    return 'hello'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from shop_fl import fl  # type: ignore[import-not-found]

    async with at_work(fl):
        assert await fl.result(await fl.enqueue("hello", tenant="acme"), timeout_s=20) == "hello"
        with pytest.raises(InvalidConfigError, match="already open"):
            await fl.__aenter__()


# ---- blocking code ---------------------------------------------------------------------------------


async def test_blocking_code_enqueues_and_waits(
    fl: Fairlead, database: Database, database_settings: DatabaseSettings
) -> None:
    @fl.job
    async def double(ctx: JobContext, number: int) -> int:
        return 2 * number

    def plain_code() -> list[object]:
        first = fl.sync.enqueue(double, {"number": 1}, tenant="acme")
        two, three = fl.sync.enqueue_many(
            [double.for_tenant("acme").request(number=2), JobRequest("double", {"number": 3}, tenant="acme")]
        )
        with psycopg.connect(database_settings.dsn) as theirs:
            four = fl.sync.enqueue("double", {"number": 4}, tenant="acme", transaction=theirs)
        results = [fl.sync.result(job, timeout_s=20) for job in (first, two, three, four)]
        fl.sync.close()
        fl.sync.close()
        with fl.sync as again:  # a later call opens it anew
            results.append(again.result(first))
        return results

    async with at_work(fl):
        assert await asyncio.to_thread(plain_code) == [2, 4, 6, 8, 2]
    assert not [thread for thread in threading.enumerate() if thread.name == "fairlead-sync"]


def test_with_a_transaction_nothing_of_ours_is_opened(
    fl: Fairlead, database_settings: DatabaseSettings
) -> None:
    """So a web process that only enqueues needs no master key, no thread and no connection of its own."""
    threads_before = threading.active_count()
    with psycopg.connect(database_settings.dsn) as theirs:
        assert fl.sync.enqueue("k", tenant="acme", transaction=theirs)
        theirs.rollback()
    assert threading.active_count() == threads_before


FORKS = """
import os, sys
from fairlead import Fairlead

fl = Fairlead.from_env()
first = fl.sync.enqueue("parent", tenant="acme")
child = os.fork()
second = fl.sync.enqueue("child" if child == 0 else "parent.again", tenant="acme")
fl.sync.close()
if child:
    sys.exit(os.waitpid(child, 0)[1])
os._exit(0)
"""
AT_EXIT = """
from fairlead import Fairlead

fl = Fairlead.from_env()
fl.sync.enqueue("left.open", tenant="acme")
"""


@pytest.mark.parametrize(
    ("program", "stored"), [(FORKS, ["child", "parent", "parent.again"]), (AT_EXIT, ["left.open"])]
)
async def test_sync_client_outlives_a_fork_and_ends_with_its_process(
    environ: dict[str, str], database: Database, program: str, stored: list[str]
) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-W", "ignore:.*fork:DeprecationWarning", "-c", program],
        env={**os.environ, **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert await kinds(database) == stored
    sessions = await rows(database, "SELECT FROM worker_session WHERE stopped_at IS NULL")
    assert sessions == [], "each process closed its own"
