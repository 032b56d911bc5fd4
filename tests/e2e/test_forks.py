"""A handler may run `multiprocessing`: what happens to its children is nothing to the worker."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from tests.e2e.test_cli_run import ready
from tests.support.cli import Shell
from tests.support.engine import IDS, new_job
from tests.support.rows import rows
from tests.support.standstill import patience

APP = """
import asyncio
import logging
import multiprocessing
import os
import time

from fairlead import Fairlead

fl = Fairlead.from_env()
multiprocessing.set_start_method("fork")


def square(number):
    logging.getLogger("mine").warning("in a child")
    return number * number


def use():
    try:
        fl.stop()
    except Exception as error:
        os._exit(7 if "not open" in str(error) else 8)


@fl.job("terminate")
async def terminate(context):
    child = multiprocessing.Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join(20)
    return child.exitcode


@fl.job("pool")
async def pool(context):
    with multiprocessing.Pool(2) as workers:
        return workers.map(square, range(4))


@fl.job("in_thread")
def in_thread(context):
    with multiprocessing.Pool(2) as workers:
        return workers.map(square, range(4))


@fl.job("use")
async def uses(context):
    child = multiprocessing.Process(target=use)
    child.start()
    child.join(20)
    return child.exitcode

"""
RESULTS = {"terminate": -signal.SIGTERM, "pool": [0, 1, 4, 9], "in_thread": [0, 1, 4, 9], "use": 7}


async def ended(database: Database, job_id: UUID) -> dict[str, Any] | None:
    jobs_found = await rows(database, "SELECT state, attempt, result FROM job WHERE job_id = $1", job_id)
    row = next((row for row in jobs_found if row["state"] not in ("available", "running")), None)
    return row and {**row, "result": json.loads(row["result"] or "null")}


async def test_process_terminate_and_a_pool_of_two_in_a_handler_do_nothing_to_the_worker(
    shell: Shell, database: Database
) -> None:
    (shell.folder / "mine.py").write_text(APP)
    child = shell.start("run", "--app", "mine:fl", "--concurrency", "3", "--json")
    await ready(child)
    store = PostgresJobStore(database, IDS)
    for kind, result in (*RESULTS.items(), *RESULTS.items()):
        (job,) = await store.enqueue([new_job(kind)])
        async with patience(60):
            while (row := await ended(database, job.job_id)) is None:
                await asyncio.sleep(0.05)
        assert row == {"state": "completed", "attempt": 1, "result": result}, kind
    child.kill(signal.SIGTERM)
    done = await shell.end(child)
    assert done.code == 0
    assert "in a child" in done.err
