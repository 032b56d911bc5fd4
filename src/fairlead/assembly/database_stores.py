"""Opens the stores of one process on its database."""

from __future__ import annotations

from contextlib import AsyncExitStack

from fairlead._core.ids import Ids
from fairlead.adapters.postgres.audit import PostgresAuditStore
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.assembly.settings import Settings


class DatabaseStores:
    """The PostgreSQL stores of one process. Close them before *database*."""

    def __init__(self, database: Database, ids: Ids, settings: Settings) -> None:
        notify = not settings.database.pooler
        bound = settings.retention.dead_letter_bound
        self.jobs = PostgresJobStore(database, ids, bound=bound, notify=notify)
        self.lanes = PostgresLaneStore(database, notify=notify)
        self.sessions = PostgresSessionStore(database, ids)
        self.schedule_store = PostgresScheduleStore(database, notify=notify)
        self.dead_letters = PostgresDeadLetterStore(database, notify=notify)
        self.audit = PostgresAuditStore(database)
        self.key_store = PostgresKeyStore(database)
        self.credentials = PostgresCredentialStore(database)
        self.endpoints = PostgresEndpointGate(database)

    async def close(self) -> None:
        """Write what the stores still hold in memory, and close them."""
        async with AsyncExitStack() as stack:
            for store in (self.jobs, self.credentials, self.endpoints):
                stack.push_async_callback(store.close)
