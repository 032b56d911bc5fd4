"""A database in LATIN1 cannot store every text: it is refused, and what it refuses spends attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.engine.jobs.acknowledger import Acknowledger
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.ports import ClaimFilter, Completed
from fairlead.errors import InvalidConfigError
from fairlead.events import JobDiscarded
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import IDS, Recorder, half, new_job
from tests.support.passing_time import pass_time
from tests.support.rows import rows, run
from tests.support.seeds import a_session


@pytest.fixture
async def latin1(database: Database, database_settings: DatabaseSettings) -> AsyncIterator[DatabaseSettings]:
    """How to reach an empty database in LATIN1."""
    await run(database, "CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    yield replace(database_settings, dsn=urlsplit(database_settings.dsn)._replace(path="/latin1").geturl())
    await run(database, "DROP DATABASE latin1 WITH (FORCE)")


async def test_latin1_database_is_refused_when_opened(latin1: DatabaseSettings) -> None:
    for opening in (Database.open, lambda settings: Migrator(settings).apply()):
        with pytest.raises(InvalidConfigError, match=r"LATIN1.*ENCODING 'UTF8'"):
            await opening(latin1)
    assert await Migrator(latin1).plan(), "nothing is left in it"


async def test_handler_that_returns_an_emoji_in_a_latin1_database_ends_in_a_dead_letter(
    latin1: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation of the refusal: the acknowledger by itself lets no job run for ever."""
    monkeypatch.setattr("fairlead.adapters.postgres.connection_setup.ENCODING", "LATIN1")
    await Migrator(latin1).apply()
    database = await Database.open(latin1)
    jobs, session_id = PostgresJobStore(database, IDS), await a_session(database)
    clock, emit = ManualClock(), Recorder()
    executor = Executor([], clock=clock, draw=half, ids=IDS, emit=emit)
    acknowledger = Acknowledger(
        jobs,
        clock=clock,
        draw=half,
        emit=emit,
        refused_outcome=executor.refused_outcome,
        on_flushed=lambda: None,
    )
    writing = asyncio.create_task(acknowledger.run())
    await jobs.enqueue([new_job()])
    for attempt in range(1, 5):
        claiming = PostgresJobStore(database, IDS)  # a new one looks at once for what is due
        (job,) = await claiming.claim(ClaimFilter(), 1, session_id)
        assert job.attempt == attempt
        acknowledger.put(job, Completed(job.job_id, job.lease_id, "\N{GRINNING FACE}"))
        await acknowledger.flushed()
        await pass_time(database, 10)
    assert await rows(database, "SELECT state, attempt FROM job") == [{"state": "discarded", "attempt": 4}]
    assert [dead.code for dead in emit.of(JobDiscarded)] == ["outcome_refused"]
    writing.cancel()
    await database.close()
