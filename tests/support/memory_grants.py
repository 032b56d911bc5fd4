"""What a credential's fate means to others: views of it, work that waits for a grant, notices, entries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import (
    AuditRecord,
    Connection,
    Credential,
    DueConnection,
    Json,
    NewJob,
    ReauthRequirement,
    Rotation,
)
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.job import Priority
from fairlead.policy.jobs.lane import Scope, ScopeKind, connection_group
from fairlead.policy.jobs.states import DeadLetterStatus, Resolution
from fairlead.testing._memory.database import MemoryDatabase
from fairlead.testing._memory.enqueue import holder_of, store
from fairlead.testing._memory.lane_rows import PauseRow
from fairlead.testing._memory.lane_turns import settle
from fairlead.testing._memory.rows import DeadLetterRow
from fairlead.testing._memory.token_rows import AuditRow, ConnectionRow, CredentialRow, RotationRow, until_s

REFRESH = "token.refresh"
_REASON, _BY = "needs_reauth", "fairlead"


# ---- views -------------------------------------------------------------------------------------


def credential_view(database: MemoryDatabase, row: CredentialRow) -> Credential:
    """*row* with its connection and the refresh in flight, as the view ``credential_detail`` gives it."""
    now, rotation = database.now, database.tokens.rotations.get(row.connection_id)
    refreshed_s = until_s(row.refreshed_at, now)
    return Credential(
        connection=_connection_view(database.tokens.connections[row.connection_id]),
        state=row.state,
        state_reason=row.state_reason,
        generation=row.generation,
        settled_epoch=row.settled_epoch,
        sealed=row.sealed,
        refreshable=row.refreshable,
        read_at=now,
        expires_in_s=until_s(row.expires_at, now),
        urgent_in_s=until_s(row.urgent_at, now),
        critical_in_s=until_s(row.critical_at, now),
        due_in_s=until_s(row.due_at, now),
        refreshed_age_s=None if refreshed_s is None else -refreshed_s,
        expires_at=row.expires_at,
        rotation=None if rotation is None else _rotation_view(database, rotation),
        granted_at=row.granted_at,
    )


def _connection_view(row: ConnectionRow) -> Connection:
    return Connection(
        connection_id=row.connection_id,
        key=row.key,
        variant=row.variant,
        account_id=row.account_id,
        client_id=row.client_id,
        endpoint=dict(row.endpoint),
        settings=dict(row.settings),
        version=row.version,
    )


def _rotation_view(database: MemoryDatabase, row: RotationRow) -> Rotation:
    now = database.now
    return Rotation(
        attempt_id=row.attempt_id,
        from_generation=row.from_generation,
        epoch=row.epoch,
        phase=row.phase,
        session_id=row.session_id,
        owner_lost=not database.is_open(row.session_id),
        expired=row.lease_until < now,
        age_sent_s=None if row.sent_at is None else (now - row.sent_at).total_seconds(),
        age_last_sent_s=None if row.sent_at is None else (now - row.started_at).total_seconds(),
        replays=row.replays,
    )


def due_view(row: CredentialRow, now: datetime) -> DueConnection:
    """*row* as a scan finds it."""
    critical = row.critical_at is not None and row.critical_at <= now
    urgent = row.urgent_at is not None and row.urgent_at <= now
    return DueConnection(
        connection_id=row.connection_id,
        key=row.key,
        generation=row.generation,
        priority=0 if critical else 1 if urgent else 2,
        refreshable=row.refreshable,
        expired=row.expires_at is not None and row.expires_at <= now,
    )


# ---- work that waits for a grant (Q6) ----------------------------------------------------------


def await_grant(database: MemoryDatabase, connection: ConnectionRow) -> None:
    """The work of *connection* waits; a pause without end stays as somebody set it."""
    scope = _scope(connection)
    pause = database.fair.pauses.get(scope)
    if pause is None or pause.until is not None:
        database.fair.pauses[scope] = PauseRow(scope, None, _REASON, _BY, database.now)
    settle(database)


def resume_after_grant(database: MemoryDatabase, connection: ConnectionRow) -> None:
    """It goes on, as far as nobody else holds it back."""
    scope = _scope(connection)
    pause = database.fair.pauses.get(scope)
    if pause is not None and (pause.reason, pause.by) == (_REASON, _BY):
        del database.fair.pauses[scope]
        settle(database)


def _scope(connection: ConnectionRow) -> Scope:
    tenant, provider, account = connection.key
    return Scope(ScopeKind.GROUP, connection_group(provider, account), tenant)


# ---- what people are told ----------------------------------------------------------------------


def tell_needs_reauth(
    database: MemoryDatabase, connection: ConnectionRow, reauth_requirement: ReauthRequirement
) -> None:
    """The notice job, once per loss."""
    args: dict[str, Json] = dict(reauth_requirement.notice_args)
    args |= {"event_id": str(reauth_requirement.notice_id), "occurred_at": database.now.isoformat()}
    job = NewJob(
        reauth_requirement.notice_id,
        "event.needs_reauth",
        connection.key.tenant,
        args=args,
        provider=connection.key.provider,
        group_key=str(connection.connection_id),
        priority=Priority.URGENT,
        unique_key=f"{reauth_requirement.connection_id}:{reauth_requirement.from_generation}",
    )
    if holder_of(database, job) is None:
        store(database, job)


def bury_refresh(
    database: MemoryDatabase, credential: CredentialRow, reauth_requirement: ReauthRequirement
) -> None:
    """An entry for a loss that no job died of; a job that dies of it is folded in."""
    now, tokens, entry_id = database.now, database.tokens, reauth_requirement.notice_id
    connection = tokens.connections[credential.connection_id]
    work = (REFRESH, connection.key.tenant, str(connection.connection_id))
    for entry in database.dead_letters.values():
        if entry.open and (entry.kind, entry.tenant_id, entry.unique_key) == work:
            return
    database.dead_letters[entry_id] = DeadLetterRow(
        dead_letter_id=entry_id,
        job_id=entry_id,
        lineage_id=entry_id,
        queue="default",
        kind=REFRESH,
        tenant_id=connection.key.tenant,
        provider=connection.key.provider,
        connection_id=connection.connection_id,
        group_key=str(connection.connection_id),
        priority=Priority.URGENT,
        category=Category.PERMANENT_AUTH.value,
        code=reauth_requirement.reason,
        reason=f"only the customer can give a new grant: {reauth_requirement.reason}",
        details={},
        history=[],
        args={
            "connection_id": str(connection.connection_id),
            "generation": reauth_requirement.from_generation,
        },
        unique_key=str(connection.connection_id),
        token_expires_at=credential.expires_at,
        action_due_at=now,
        first_at=now,
        last_at=now,
    )


def heal(
    database: MemoryDatabase,
    connection_id: UUID,
    resolution: Resolution,
    *,
    by: str,
    reason: str,
) -> None:
    """Close the dead refreshes of a connection. A replay in flight stays noted."""
    for entry in database.dead_letters.values():
        if entry.open and entry.connection_id == connection_id and entry.kind == REFRESH:
            replay_job_id = entry.replay_job_id
            entry.close(DeadLetterStatus.AUTO_RESOLVED, resolution.value, by, reason, database.now)
            entry.replay_job_id = replay_job_id


def audit(
    database: MemoryDatabase,
    audit_id: UUID,
    act: str,
    actor: str,
    connection_id: UUID,
    details: Mapping[str, Json] | None = None,
) -> None:
    """One line more of the trail, about a connection that is there."""
    key = database.tokens.connections[connection_id].key
    record = AuditRecord(
        audit_id=audit_id,
        act=act,
        actor=actor,
        tenant=key.tenant,
        provider=key.provider,
        connection_id=connection_id,
        details=dict(details or {}),
    )
    database.tokens.audit.append(AuditRow(database.now, record))
