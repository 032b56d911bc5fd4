"""The stores of PostgreSQL, for the suites that every implementation passes."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.adapters.postgres.audit import PostgresAuditStore
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.engine.ports import AuditRecord
from tests.support.engine import IDS
from tests.support.passing_time import pass_time


@dataclass(frozen=True, slots=True)
class PostgresStores:
    """See ``tests.contract.stores.Stores``."""

    database: Database
    jobs: PostgresJobStore
    sessions: PostgresSessionStore
    schedule_store: PostgresScheduleStore
    dead_letters: PostgresDeadLetterStore
    lanes: PostgresLaneStore
    credentials: PostgresCredentialStore
    endpoints: PostgresEndpointGate

    def peer(self) -> PostgresCredentialStore:
        return PostgresCredentialStore(self.database)

    async def trail(self) -> list[AuditRecord]:
        newest_first = await PostgresAuditStore(self.database).search(tenant=None, limit=100_000)
        return [record for _, record in reversed(newest_first)]

    async def pass_time(self, delay_s: float) -> None:
        await pass_time(self.database, delay_s)


def postgres_stores(database: Database) -> PostgresStores:
    return PostgresStores(
        database,
        PostgresJobStore(database, IDS),
        PostgresSessionStore(database, IDS),
        PostgresScheduleStore(database),
        PostgresDeadLetterStore(database),
        PostgresLaneStore(database),
        PostgresCredentialStore(database),
        PostgresEndpointGate(database),
    )
