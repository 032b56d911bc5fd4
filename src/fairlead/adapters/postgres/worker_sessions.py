"""The sessions of live processes in PostgreSQL: see fairlead.engine.ports.SessionStore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from uuid import UUID

from fairlead._core.ids import Ids
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import KeyHolder, ProcessIdentity, Renewed, Rescue, SessionView

_IDENTITY = [field.name for field in fields(ProcessIdentity)]


class PostgresSessionStore:
    """The SessionStore port on PostgreSQL."""

    def __init__(self, database: Database, ids: Ids) -> None:
        self._database = database
        self._ids = ids

    async def open(
        self,
        session_id: UUID,
        identity: ProcessIdentity,
        lease_s: float,
        version: str,
        master_keys: Sequence[str] | None = None,
        app_version: str | None = None,
    ) -> None:
        values = {
            "session_id": session_id,
            "version": version,
            "lease_s": lease_s,
            "master_keys": master_keys,
            "app_version": app_version,
            **{name: getattr(identity, name) for name in _IDENTITY},
        }
        await self._database.resolve_doubt(lambda: self._database.urgent(statement("session_open"), **values))

    async def heartbeat(
        self, session_id: UUID, running: Sequence[UUID] = (), trouble: str | None = None
    ) -> Renewed | None:
        beat = statement("session_heartbeat")
        rows = await self._database.urgent(
            beat, session_id=session_id, running=[*map(str, running)], trouble=trouble
        )
        if not rows:
            return None
        return Renewed(frozenset(map(int, rows[0]["cancelled"])), rows[0]["data_keys_renewed_at"])

    async def close(self, session_id: UUID) -> None:
        await self._database.resolve_doubt(
            lambda: self._database.urgent(statement("session_close"), session_id=session_id)
        )

    async def key_holders(self, seen_within_s: float = 0.0) -> list[KeyHolder]:
        rows = await self._database.fetch(statement("session_key_holders"), seen_within_s=seen_within_s)
        return [
            KeyHolder(
                row["session_id"],
                row["host"],
                row["pid"],
                None if row["master_keys"] is None else tuple(row["master_keys"]),
                row["is_behind"],
            )
            for row in rows
        ]

    async def data_keys_renewed(self) -> None:
        await self._database.fetch(statement("session_data_keys_renewed"))

    async def local_sessions(self, identity: ProcessIdentity) -> list[tuple[UUID, ProcessIdentity]]:
        rows = await self._database.fetch(
            statement("session_local"),
            boot_id=identity.boot_id,
            pid_namespace=identity.pid_namespace,
            pid=identity.pid,
        )
        return [(row["session_id"], _identity(row)) for row in rows]

    async def mark_dead(self, session_ids: Sequence[UUID]) -> int:
        return len(await self._database.fetch(statement("session_mark_dead"), session_ids=session_ids))

    async def rescue(self, session_id: UUID, every_s: float, max_crashes: int, limit: int) -> Rescue | None:
        row = await self._database.first(
            statement("session_rescue"),
            session_id=session_id,
            every_s=every_s,
            max_crashes=max_crashes,
            dead_letter_ids=[self._ids.uuid7() for _ in range(limit)],
        )
        if row is None:
            return None
        return Rescue(row["ready"], row["sessions"], row["rescued"], row["dead"])

    async def search(self) -> list[SessionView]:
        return [_view(row) for row in await self._database.fetch(statement("session_search"))]

    async def prune(self, older_than_s: float, limit: int) -> int:
        row = await self._database.first(statement("session_prune"), older_than_s=older_than_s, limit=limit)
        return int(row["deleted"]) if row else 0


def _identity(row: Row) -> ProcessIdentity:
    return ProcessIdentity(**{name: row[name] for name in _IDENTITY})


def _view(row: Row) -> SessionView:
    about = {name: value for name, value in row.items() if name not in _IDENTITY}
    return SessionView(identity=_identity(row), **about)
