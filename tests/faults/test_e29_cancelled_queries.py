"""E29 for PostgreSQL: callers are cancelled at any moment over a slow wire, and each answer is its asker's.

They ask through the product's stores: alone and in a batch, behind the wall between tenants, in a statement
and in a transaction of several. They leave in line and with a connection in their hands. Afterwards the pool
is whole, its connections are in no transaction and know no tenant, and of a write that was cancelled all is
stored, or nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from fairlead.adapters.postgres import database as database_module
from fairlead.adapters.postgres import enqueuer
from fairlead.adapters.postgres.connection_checkout import ConnectionCheckout
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.base.batch import Batcher
from fairlead.engine.ports import Enqueued, NewJob
from fairlead.errors import DependencyUnavailableError
from tests.faults.support.faultproxy import postgres_proxy
from tests.faults.support.pgstorm import ASKERS, DELAY_S, KIND, PARTS, ROUND_TRIPS, Storm, keeps
from tests.faults.support.report import Figures, conclude, sized
from tests.support.engine import IDS
from tests.support.rows import rows
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

ASKS = sized(6_000, 100_000)
ABLATION_ASKS = 2_000
ASKS_IN_VAIN = 300  # each waits for a connection that never comes
CONNECTIONS = 6
SLICE = PARTS // 2
RECOVERS_BOUND_S = 2.0
LOOK_S = 0.02
APPLICATION = "fairlead-storm"

BACKENDS = (
    "SELECT count(*) AS backends, count(*) FILTER (WHERE state <> 'idle') AS at_work FROM pg_stat_activity"
    " WHERE application_name = $1"
)
STORED = (
    "SELECT tenant_id, args->>'tenant' AS tenant, (args->>'ask')::int AS ask, (args->>'part')::int AS part"
    " FROM job WHERE kind = $1"
)


class Parts:
    """The figures of one storm: each part has its own chances to be wrong.

    *sees*: by part, what *ablation* must break. Its other parts have nothing to show, and no verdict.
    """

    def __init__(self, ablation: str | None = None, **sees: str) -> None:
        sign = next(iter(sees.values()), "")
        self.answers = Figures("E29", ablation, sees.get("answers", sign))
        seed = self.answers.seed
        self.connections = Figures("E29", ablation, sees.get("connections", sign), seed)
        self.writes = Figures("E29", ablation, sees.get("writes", sign), seed)
        self.accepted = Figures("E29", ablation, sees.get("accepted", sign), seed)
        self.streams = Figures("E29", ablation, sees.get("streams", sign), seed)
        parts = {
            "answers": self.answers,
            "connections": self.connections,
            "writes": self.writes,
            "accepted": self.accepted,
            "streams": self.streams,
        }
        for part_name, figures in parts.items():
            figures.note(what=part_name)
        self._judged = [parts[part_name] for part_name in sees or parts]

    def conclude(self) -> None:
        """Each for itself."""
        conclude(*self._judged)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few jobs be a stream, so that callers are cancelled between the statements of a transaction."""
    monkeypatch.setattr(enqueuer, "SLICE", SLICE)


@asynccontextmanager
async def _storm(figures: Figures, settings: DatabaseSettings, **more: Any) -> AsyncIterator[Storm]:
    async with postgres_proxy(settings.dsn) as (proxy, url):
        proxy.delay_s = lambda: figures.draw.uniform(0.0, DELAY_S)
        sizes: dict[str, Any] = {
            "min_size": CONNECTIONS,
            "max_size": CONNECTIONS,
            "application_name": APPLICATION,
        }
        storm = Storm(await Database.open(replace(settings, dsn=url, **sizes, **more)), figures.draw)
        try:
            assert storm.database.row_security_enabled
            await storm.furnish()
            yield storm
        finally:
            await storm.close()


async def _beyond(eyes: Database, most: int) -> int:
    """Backends of the storm that are at work or more than *most*, once there was time to recover."""
    until_s = time.monotonic() + RECOVERS_BOUND_S
    while True:
        [backends] = await rows(eyes, BACKENDS, APPLICATION)
        beyond = max(backends["at_work"], backends["backends"] - most)
        if not beyond or time.monotonic() > until_s:
            return int(beyond)
        await asyncio.sleep(LOOK_S)


async def _judge_pool(storm: Storm, eyes: Database, figures: Figures) -> None:
    """All connections can be had at once and know nobody, and to the server none of them is at work."""
    began_s = time.monotonic()
    async with AsyncExitStack() as stack:
        had: list[DatabaseConnection] = []
        with suppress(DependencyUnavailableError):
            while len(had) < CONNECTIONS:
                had.append(await stack.enter_async_context(storm.lender.checkout()))
        keeping = await asyncio.gather(*map(keeps, had), return_exceptions=True)
        recovers_s = ran_s(began_s)
        at_work = await _beyond(eyes, CONNECTIONS)
    counts = storm.lender.told
    figures.note(n=counts["looked_at"] + len(had), pool_recovers_s=round(recovers_s, 3))
    figures.holds(recovers_s <= RECOVERS_BOUND_S, f"the pool was whole after {recovers_s:.1f} s")
    figures.zero(
        settings_left=counts["keeps"] + sum(answer is not False for answer in keeping),
        transactions_left=counts["in_transaction"],
    )
    missing = CONNECTIONS - len(had)
    figures.holds(not missing, f"{missing} of {CONNECTIONS} connections missing")
    figures.holds(not at_work, f"{at_work} backends at work")


async def _experiment(
    parts: Parts, settings: DatabaseSettings, eyes: Database, asks: int, **more: Any
) -> None:
    async with _storm(parts.answers, settings, **more) as storm:
        began_s = time.monotonic()
        await storm.run(asks)
        took_s = time.monotonic() - began_s
        await _judge_pool(storm, eyes, parts.connections)
    beyond = await _beyond(eyes, 0)
    parts.connections.holds(not beyond, f"{beyond} backends left")
    counts = storm.told
    failed = sum(count for name, count in counts.items() if name not in ("cancelled", "wrong", *ROUND_TRIPS))
    parts.answers.note(
        n=storm.answers, asks=asks + ASKERS, asks_per_s=round(asks / took_s), told=dict(counts)
    )
    parts.answers.note(cancelled_with_a_connection=storm.lender.told["cancelled"])
    parts.answers.zero(wrong_answers=counts["wrong"], failed=failed)
    storm.ledger.judge(await rows(eyes, STORED, KIND), parts.writes, parts.accepted, parts.streams)


async def test_E29_cancelled_queries(database: Database, database_settings: DatabaseSettings) -> None:
    parts = Parts()
    await _experiment(parts, database_settings, database, ASKS)
    counted = parts.answers.counters
    parts.answers.holds(counted["told"]["cancelled"] > 0.05 * ASKS, "hardly any ask was cancelled")
    at_work = counted["cancelled_with_a_connection"]
    parts.answers.holds(at_work > 0.02 * ASKS, "hardly any was cancelled with a connection")
    parts.conclude()


# ---- without a safeguard


async def test_E29_ablation_the_answers_of_the_cancelled_go_to_the_next(
    database: Database, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a batch brings is given to those who still wait, in their order."""

    def hand_out(_batcher: object, _items: object, answers: list[Any], results: list[Any]) -> None:
        waiting = (answer for answer in answers if not answer.done())
        for answer, result in zip(waiting, results, strict=False):
            answer.set_result(result)

    parts = Parts("answers_move_up", answers="wrong_answers")
    monkeypatch.setattr(Batcher, "_hand_out", hand_out)
    await _experiment(parts, database_settings, database, ABLATION_ASKS)
    parts.conclude()


async def test_E29_ablation_a_cancelled_query_leaves_its_connection_as_it_is(
    database: Database, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither we nor the driver end its transaction, and the next asker is in it."""

    @asynccontextmanager
    async def left_open(connection: DatabaseConnection) -> AsyncIterator[None]:
        await connection.execute("BEGIN")
        yield
        await connection.execute("COMMIT")

    async def as_it_is(_connection: object) -> None:
        pass

    parts = Parts("left_open", answers="failed", connections="transactions_left")
    monkeypatch.setattr(database_module, "transaction", left_open)
    monkeypatch.setattr(asyncpg.Connection, "_reset", as_it_is)
    await _experiment(parts, database_settings, database, ABLATION_ASKS)
    parts.conclude()


async def test_E29_ablation_the_wall_outlasts_its_transaction(
    database: Database, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the session's, and who is cancelled does not take it down."""
    say = "SELECT set_config('role', $1, false), set_config('fairlead.tenants', $2::text[]::text, false)"

    async def enter_tenant_role(connection: DatabaseConnection, role: str, tenants: tuple[str, ...]) -> None:
        await connection.fetch(say, role, tenants)

    @asynccontextmanager
    async def taken_down(connection: DatabaseConnection) -> AsyncIterator[None]:
        yield
        await connection.fetch(say, "none", None)

    parts = Parts("wall_of_the_session", answers="wrong_answers", connections="settings_left")
    monkeypatch.setattr(database_module, "enter_tenant_role", enter_tenant_role)
    monkeypatch.setattr(database_module, "transaction", taken_down)
    await _experiment(parts, database_settings, database, ABLATION_ASKS)
    parts.conclude()


async def test_E29_ablation_the_cancelled_keep_their_connections(
    database: Database, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes them back."""
    original = ConnectionCheckout._release

    async def take_back(lender: ConnectionCheckout, connection: DatabaseConnection, urgent: bool) -> None:
        task = asyncio.current_task()
        if task is None or task.get_name() != "fairlead-release-connection":
            await original(lender, connection, urgent)

    parts = Parts("not_taken_back", connections="connections missing")
    monkeypatch.setattr(ConnectionCheckout, "_release", take_back)
    await _experiment(parts, database_settings, database, ASKS_IN_VAIN, acquire_timeout_s=0.2)
    parts.conclude()


async def test_E29_ablation_each_statement_counts_alone(
    database: Database, database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What belongs together is no transaction."""
    parts = Parts("no_transaction", streams="torn")
    monkeypatch.setattr(database_module, "transaction", nullcontext)
    await _experiment(parts, database_settings, database, ABLATION_ASKS)
    parts.conclude()


@pytest.mark.parametrize(
    ("guess", "part_name", "sees"), [("believes", "accepted", "lost"), ("does_again", "writes", "doubled")]
)
async def test_E29_ablation_what_became_of_a_cancelled_write_is_guessed(
    guess: str,
    part_name: str,
    sees: str,
    database: Database,
    database_settings: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is taken for stored, or for not stored and done again under another id."""
    original = PostgresJobStore.enqueue

    async def enqueue(store: PostgresJobStore, jobs: list[NewJob]) -> list[Enqueued]:
        try:
            return await original(store, jobs)
        except asyncio.CancelledError:
            if guess == "does_again":
                await original(store, [replace(job, job_id=IDS.uuid7()) for job in jobs])
                raise
            return [Enqueued(job.job_id, True) for job in jobs]

    parts = Parts(guess, **{part_name: sees})
    monkeypatch.setattr(PostgresJobStore, "enqueue", enqueue)
    await _experiment(parts, database_settings, database, ABLATION_ASKS)
    parts.conclude()
