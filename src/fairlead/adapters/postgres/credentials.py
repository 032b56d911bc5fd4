"""Connections, sealed credentials and refresh attempts in PostgreSQL.

Reads, INTENT, SENT, settle and release are batched: concurrent refreshes share one statement and one commit.
The header of each SQL file states its contract.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from fairlead.adapters.postgres.credential_rows import credential_of, due_of, is_asked_for, named_columns
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.permits import IN_DOUBT_S, Permits
from fairlead.adapters.postgres.postgres_errors import READ_ONLY_HINT, ReadOnlyServerError, RowLockedError
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.base.batch import Batcher
from fairlead.engine.ports import (
    Claim,
    ConnectionKey,
    Credential,
    DueConnection,
    DuePage,
    EndpointRefusal,
    GrantState,
    Intent,
    NewCredential,
    PermitRequest,
    ReauthRequirement,
    SentMark,
    SettingsChange,
    Settlement,
    SettleVerdict,
    UnknownOutcome,
)

T = TypeVar("T")

_LOCKED_PAUSES_S = (0.02, 0.1)
"""The pauses before a locked row is tried again, outside of any batch. A longer lock is an error."""
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
_FIRST_ID = UUID(int=0)


class PostgresCredentialStore:
    """Implements ``CredentialStore``. Close it before the database, so that no batch is cut short."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads = Batcher(self._read_many, name="credential_read")
        self._id_reads = Batcher(self._read_ids, name="credential_read_id")
        self._permits = Permits(database)
        self._sents = Batcher(self._mark_many, name="refresh_attempt_sent")
        self._releases = Batcher(self._release_many, name="refresh_attempt_release")
        self._settles: Batcher[Settlement, SettleVerdict] = Batcher(
            self._settle_many, name="credential_settle"
        )

    async def close(self) -> None:
        """Answer pending requests, then accept no more."""
        batchers = (self._reads, self._id_reads, self._permits, self._sents, self._releases, self._settles)
        for batcher in batchers:
            await batcher.close()

    # ---- batched -------------------------------------------------------------------------------

    async def read(self, key: ConnectionKey) -> Credential | None:
        return await self._reads(key)

    async def _read_many(self, keys: Sequence[ConnectionKey]) -> list[Credential | None]:
        rows = await self._database.for_tenants(*{key.tenant for key in keys}).fetch(
            statement("credential_read"), **named_columns(keys)
        )
        return _in_order([row for row in rows if is_asked_for(row, keys)], len(keys))

    async def read_id(self, connection_id: UUID) -> Credential | None:
        return await self._id_reads(connection_id)

    async def _read_ids(self, ids: Sequence[UUID]) -> list[Credential | None]:
        rows = await self._database.fetch(statement("credential_read_id"), connection_ids=list(ids))
        return _in_order(rows, len(ids))

    async def claim(self, intent: Intent, request: PermitRequest) -> Claim | EndpointRefusal | None:
        grant = await self._permits.take(request, intent)
        if isinstance(grant, EndpointRefusal):
            return grant
        return None if grant.epoch is None else Claim(grant.epoch, grant.permit)

    async def mark_sent(self, connection_id: UUID, attempt_id: UUID) -> SentMark | None:
        return await self._sents((connection_id, attempt_id))

    async def _mark_many(self, marks: Sequence[tuple[UUID, UUID]]) -> list[SentMark | None]:
        rows = await self._database.fetch(
            statement("refresh_attempt_sent"),
            connection_ids=[connection_id for connection_id, _ in marks],
            attempt_ids=[attempt_id for _, attempt_id in marks],
        )
        sent = {row["attempt_id"]: SentMark(row["sent_at"], row["started_at"]) for row in rows}
        return [sent.get(attempt_id) for _, attempt_id in marks]

    async def release(self, connection_id: UUID, attempt_id: UUID) -> bool:
        return await _retry_locked(lambda: self._releases((connection_id, attempt_id)))

    async def _release_many(self, attempts: Sequence[tuple[UUID, UUID]]) -> list[bool | Exception]:
        rows = await self._database.resolve_doubt(
            lambda: self._database.fetch(
                statement("refresh_attempt_release"),
                connection_ids=[connection_id for connection_id, _ in attempts],
                attempt_ids=[attempt_id for _, attempt_id in attempts],
            ),
            within_s=IN_DOUBT_S,
        )
        released, busy = ({row["id"] for row in rows if row["busy"] is is_busy} for is_busy in (False, True))
        return [
            _locked(connection_id) if connection_id in busy else attempt_id in released
            for connection_id, attempt_id in attempts
        ]

    async def settle(self, settlement: Settlement) -> SettleVerdict:
        return await _retry_locked(lambda: self._settles(settlement))

    async def _settle_many(self, settlements: Sequence[Settlement]) -> list[SettleVerdict | Exception]:
        rows = await self._database.fetch(
            statement("credential_settle"),
            connection_ids=[settlement.connection_id for settlement in settlements],
            generations=[settlement.from_generation for settlement in settlements],
            epochs=[settlement.epoch for settlement in settlements],
            seens=[
                settlement.expected_sealed.blob if settlement.expected_sealed else None
                for settlement in settlements
            ],
            sealeds=[settlement.sealed.blob for settlement in settlements],
            key_ids=[settlement.sealed.key_id for settlement in settlements],
            refreshables=[settlement.refreshable for settlement in settlements],
            sent_ats=[settlement.sent_at for settlement in settlements],
            expires_in_s=[settlement.lifetime.expires_in_s for settlement in settlements],
            urgent_in_s=[settlement.lifetime.urgent_in_s for settlement in settlements],
            critical_in_s=[settlement.lifetime.critical_in_s for settlement in settlements],
            due_in_s=[settlement.lifetime.due_in_s for settlement in settlements],
            account_ids=[settlement.account_id for settlement in settlements],
            actors=[settlement.actor for settlement in settlements],
            audit_ids=[settlement.audit_id for settlement in settlements],
            yields_s=[settlement.defer_s for settlement in settlements],
        )
        settled = {(row["connection_id"], row["epoch"]) for row in rows}
        busy = {row["connection_id"] for row in rows if row["busy"]}
        return [
            _locked(settlement.connection_id)
            if settlement.connection_id in busy
            else "settled"
            if (settlement.connection_id, settlement.epoch) in settled
            else "superseded"
            for settlement in settlements
        ]

    # ---- one at a time -------------------------------------------------------------------------

    async def create(self, new: NewCredential) -> bool:
        row = await self._database.for_tenants(new.key.tenant).first(
            statement("connection_insert"),
            tenant_id=new.key.tenant,
            provider=new.key.provider,
            account=new.key.account,
            **_grant_columns(new),
        )
        return row is not None

    async def replace(self, new: NewCredential) -> bool:
        columns = {"tenant_id": new.key.tenant, "generation": new.generation, **_grant_columns(new)}
        row = await self._database.for_tenants(new.key.tenant).first(
            statement("credential_replace"), **columns
        )
        return row is not None

    async def claim_replay(self, intent: Intent, replays: int) -> int | None:
        row = await self._database.first(
            statement("refresh_attempt_replay"),
            connection_id=intent.connection_id,
            attempt_id=intent.attempt_id,
            generation=intent.from_generation,
            replays=replays,
            session_id=intent.session_id,
            lease_s=intent.lease_s,
        )
        return None if row is None else int(row["epoch"])

    async def mark_late(self, connection_id: UUID, from_generation: int, left_at: datetime) -> int | None:
        values = {"connection_id": connection_id, "generation": from_generation, "left_at": left_at}
        for _ in range(2):  # the first does not see a settlement that it waited for
            row = await self._database.first(statement("refresh_attempt_late"), **values)
            if row is not None:
                return int(row["epoch"])
        return None

    async def mark_unknown(self, unknown: UnknownOutcome) -> bool:
        return await self._database.first(statement("refresh_attempt_unknown"), **asdict(unknown)) is not None

    async def require_reauth(self, requirement: ReauthRequirement) -> bool:
        row = await self._database.first(
            statement("credential_require_reauth"),
            connection_id=requirement.connection_id,
            generation=requirement.from_generation,
            attempt_id=requirement.attempt_id,
            reason=requirement.reason,
            audit_id=requirement.audit_id,
            job_id=requirement.notice_id,
            job_args=json.dumps(dict(requirement.notice_args)),
            unique_key=f"{requirement.connection_id}:{requirement.from_generation}",
        )
        return row is not None

    async def await_grant(self, key: ConnectionKey) -> GrantState | None:
        row = await self._database.for_tenants(key.tenant).first(
            statement("grant_await"), tenant_id=key.tenant, provider=key.provider, account=key.account
        )
        return None if row is None else GrantState(row["connection_id"], row["is_gone"], row["changed_s"])

    async def due(
        self, *, urgent_only: bool, cool_down_s: float, cursor: tuple[datetime, UUID] | None, limit: int
    ) -> DuePage:
        after_due_at, after_id = cursor or (_LONG_AGO, _FIRST_ID)
        rows = await self._database.fetch(
            statement("credential_due"),
            after_due_at=after_due_at,
            after_id=after_id,
            cool_down_s=cool_down_s,
            urgent_only=urgent_only,
            limit=limit,
        )
        last = rows[-1] if len(rows) == limit else None
        next_cursor = None if last is None else (last["due_at"], last["connection_id"])
        return DuePage([due_of(row, row["priority"]) for row in rows], next_cursor)

    async def left_behind(self, limit: int, cool_down_s: float) -> Sequence[DueConnection]:
        rows = await self._database.fetch(
            statement("refresh_attempt_unsettled"), limit=limit, cool_down_s=cool_down_s
        )
        return [due_of(row, 1) for row in rows]

    async def postpone(self, connection_id: UUID, generation: int, due_in_s: float | None) -> None:
        await self._database.fetch(
            statement("credential_postpone"),
            connection_id=connection_id,
            generation=generation,
            due_in_s=due_in_s,
        )

    async def search(
        self, *, tenant: str | None, provider: str | None, state: str | None, limit: int
    ) -> list[Credential]:
        rows = await self._database.for_tenants(tenant).fetch(
            statement("credential_search"), tenant_id=tenant, provider=provider, state=state, limit=limit
        )
        return [credential_of(row) for row in rows]

    async def revoke(
        self, connection_id: UUID, tenant: str, *, actor: str, reason: str, audit_id: UUID
    ) -> bool:
        row = await self._database.for_tenants(tenant).first(
            statement("credential_revoke"),
            connection_id=connection_id,
            tenant_id=tenant,
            actor=actor,
            reason=reason,
            audit_id=audit_id,
        )
        return row is not None

    async def configure(self, change: SettingsChange, *, actor: str, audit_id: UUID) -> bool:
        row = await self._database.for_tenants(change.connection.key.tenant).first(
            statement("connection_configure"),
            connection_id=change.connection.connection_id,
            tenant_id=change.connection.key.tenant,
            version=change.connection.version,
            settings=json.dumps(dict(change.new_settings)),
            set=json.dumps(dict(change.changed)),
            unset=change.removed,
            seen=change.expected_sealed.blob if change.expected_sealed else None,
            sealed=change.sealed.blob if change.sealed else None,
            key_id=change.sealed.key_id if change.sealed else None,
            actor=actor,
            audit_id=audit_id,
        )
        return row is not None

    async def remove(self, connection_id: UUID, tenant: str, *, actor: str, audit_id: UUID) -> bool:
        values = {"connection_id": connection_id, "tenant_id": tenant, "actor": actor, "audit_id": audit_id}
        row = await self._database.for_tenants(tenant).first(statement("connection_remove"), **values)
        return row is not None

    async def counts(self) -> Mapping[str, int]:
        rows = await self._database.fetch(statement("credential_counts"))
        return {row["state"]: row["count"] for row in rows}

    async def timeline(self) -> str:
        row = await self._database.first(statement("database_timeline"))
        if row is None:
            raise ReadOnlyServerError("this database server is a stand-by", hint=READ_ONLY_HINT)
        return str(row["timeline"])

    async def raise_epochs(self, floor: int) -> None:
        await self._database.fetch(statement("send_epoch_raise"), floor=floor)


async def _retry_locked(attempt: Callable[[], Awaitable[T]]) -> T:
    """Run *attempt* again, after a pause, while its row is locked by another transaction."""
    for pause_s in _LOCKED_PAUSES_S:
        try:
            return await attempt()
        except RowLockedError:
            await asyncio.sleep(pause_s)
    return await attempt()


def _locked(connection_id: UUID) -> RowLockedError:
    return RowLockedError(f"the credential of connection {connection_id} is locked by another transaction")


def _in_order(rows: Sequence[Row], length: int) -> list[Credential | None]:
    credentials: list[Credential | None] = [None] * length
    for row in rows:
        credentials[row["ord"] - 1] = credential_of(row)
    return credentials


def _grant_columns(new: NewCredential) -> dict[str, object]:
    return {
        "connection_id": new.connection_id,
        "variant": new.variant,
        "account_id": new.account_id,
        "client_id": new.client_id,
        "endpoint": json.dumps(dict(new.endpoint)),
        "settings": json.dumps(dict(new.settings)),
        "sealed": new.sealed.blob,
        "key_id": new.sealed.key_id,
        "refreshable": new.refreshable,
        **asdict(new.lifetime),
        "state": new.state,
        "state_reason": new.state_reason,
        "actor": new.actor,
        "audit_id": new.audit_id,
    }
