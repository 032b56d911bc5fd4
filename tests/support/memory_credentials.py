"""Connections and credentials in memory; see ``fairlead.engine.ports.CredentialStore``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import (
    ConnectionKey,
    Credential,
    DueConnection,
    DuePage,
    GrantState,
    Json,
    NewCredential,
    SettingsChange,
)
from fairlead.errors import InvalidInputError
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import Resolution
from fairlead.testing._memory.database import seconds, statement
from fairlead.testing._memory.token_rows import ConnectionRow, CredentialRow, shifted
from tests.support.memory_grants import (
    REFRESH,
    audit,
    credential_view,
    due_view,
    heal,
    resume_after_grant,
)
from tests.support.memory_grants import await_grant as hold_for_grant
from tests.support.memory_rotations import Rotations


class MemoryCredentialStore(Rotations):
    """Connections, credentials and rotations of a `MemoryDatabase`.

    A lost answer (`MemoryLink.after`) comes out as it is: nothing is asked again here.
    """

    # ---- connections ---------------------------------------------------------------------------

    @statement
    def create(self, new: NewCredential) -> bool:
        tokens, now = self.database.tokens, self.database.now
        if any(row.key == new.key for row in tokens.connections.values()):
            return False
        if new.connection_id in tokens.connections:
            raise InvalidInputError(f"there is a connection {new.connection_id}", tenant=new.key.tenant)
        tokens.connections[new.connection_id] = ConnectionRow(
            connection_id=new.connection_id,
            key=new.key,
            variant=new.variant,
            account_id=new.account_id,
            client_id=new.client_id,
            endpoint=dict(new.endpoint),
            settings=dict(new.settings),
            created_at=now,
            updated_at=now,
        )
        row = CredentialRow(new.connection_id, new.key, new.sealed, new.refreshable, now, granted_at=now)
        row.become(new.state, new.state_reason, now)
        row.live(new.lifetime, now)
        tokens.credentials[new.connection_id] = row
        audit(self.database, new.audit_id, "connection.created", new.actor, new.connection_id)
        return True

    @statement
    def replace(self, new: NewCredential) -> bool:
        row, now = self.database.tokens.credentials.get(new.connection_id), self.database.now
        if row is None or row.key.tenant != new.key.tenant or row.generation != new.generation - 1:
            return False
        row.generation, row.settled_epoch, row.refreshed_at = new.generation, 0, None
        row.sealed, row.refreshable, row.granted_at = new.sealed, new.refreshable, now
        row.become(new.state, new.state_reason, now)
        row.live(new.lifetime, now)
        connection = self.database.tokens.connections[new.connection_id]
        connection.variant, connection.client_id = new.variant, new.client_id
        connection.account_id = new.account_id if new.account_id is not None else connection.account_id
        connection.endpoint, connection.settings = dict(new.endpoint), dict(new.settings)
        connection.change(now)
        self.database.tokens.rotations.pop(new.connection_id, None)
        if new.state == "active":
            reason = "the connection was given a new grant"
            heal(self.database, new.connection_id, Resolution.REAUTHORIZE, by=new.actor, reason=reason)
            for entry in self.database.dead_letters.values():
                needs_reauth = entry.category == Category.PERMANENT_AUTH and entry.tenant_id == new.key.tenant
                about = entry.connection_id == new.connection_id
                if needs_reauth and about and entry.open and entry.replay_job_id is None:
                    entry.action_due_at = now
            resume_after_grant(self.database, connection)
        details: dict[str, Json] = {"generation": new.generation}
        audit(self.database, new.audit_id, "connection.reauthorised", new.actor, new.connection_id, details)
        return True

    @statement
    def configure(self, change: SettingsChange, *, actor: str, audit_id: UUID) -> bool:
        connection_id = change.connection.connection_id
        row = self.database.tokens.connections.get(connection_id)
        of = change.connection.key.tenant
        if row is None or row.key.tenant != of or row.version != change.connection.version:
            return False
        if change.expected_sealed is not None and change.sealed is not None:
            credential = self.database.tokens.credentials[connection_id]
            if credential.sealed != change.expected_sealed:
                return False
            credential.sealed = change.sealed
        row.settings = dict(change.new_settings)
        row.change(self.database.now)
        details: dict[str, Json] = {"set": dict(change.changed), "unset": list(change.removed)}
        audit(self.database, audit_id, "connection.configured", actor, connection_id, details)
        return True

    @statement
    def revoke(self, connection_id: UUID, tenant: str, *, actor: str, reason: str, audit_id: UUID) -> bool:
        row = self.database.tokens.credentials.get(connection_id)
        if row is None or row.key.tenant != tenant or row.state == "revoked":
            return False
        row.become("revoked", reason, self.database.now)
        row.due_at = None
        self.database.tokens.rotations.pop(connection_id, None)
        audit(self.database, audit_id, "connection.revoked", actor, connection_id, {"reason": reason})
        return True

    @statement
    def await_grant(self, key: ConnectionKey) -> GrantState | None:
        rows = self.database.tokens.credentials.values()
        row = next((row for row in rows if row.key == key), None)
        if row is None:
            return None
        is_gone = row.state in ("needs_reauth", "revoked")
        if is_gone:
            hold_for_grant(self.database, self.database.tokens.connections[row.connection_id])
        changed_s = (self.database.now - row.state_at).total_seconds()
        return GrantState(row.connection_id, is_gone, max(0.0, changed_s))

    @statement
    def remove(self, connection_id: UUID, tenant: str, *, actor: str, audit_id: UUID) -> bool:
        tokens = self.database.tokens
        connection = tokens.connections.get(connection_id)
        if connection is None or connection.key.tenant != tenant:
            return False
        audit(self.database, audit_id, "connection.removed", actor, connection_id)
        del tokens.connections[connection_id]
        del tokens.credentials[connection_id]
        tokens.rotations.pop(connection_id, None)
        tokens.backoffs.pop(connection_id, None)
        resume_after_grant(self.database, connection)
        return True

    # ---- reading -------------------------------------------------------------------------------

    @statement
    def read(self, key: ConnectionKey) -> Credential | None:
        rows = self.database.tokens.credentials.values()
        return next((credential_view(self.database, row) for row in rows if row.key == key), None)

    @statement
    def read_id(self, connection_id: UUID) -> Credential | None:
        row = self.database.tokens.credentials.get(connection_id)
        return None if row is None else credential_view(self.database, row)

    @statement
    def search(
        self, *, tenant: str | None, provider: str | None, state: str | None, limit: int
    ) -> list[Credential]:
        matches = [
            row
            for row in sorted(self.database.tokens.credentials.values(), key=lambda row: row.key)
            if tenant in (None, row.key.tenant)
            and provider in (None, row.key.provider)
            and state in (None, row.state)
        ]
        return [credential_view(self.database, row) for row in matches[:limit]]

    @statement
    def counts(self) -> Mapping[str, int]:
        return Counter(row.state for row in self.database.tokens.credentials.values())

    @statement
    def timeline(self) -> str:
        return self.database.tokens.timeline

    @statement
    def raise_epochs(self, floor: int) -> None:
        self.database.tokens.sends = max(self.database.tokens.sends, floor)

    # ---- scans ---------------------------------------------------------------------------------

    @statement
    def due(
        self, *, urgent_only: bool, cool_down_s: float, cursor: tuple[datetime, UUID] | None, limit: int
    ) -> DuePage:
        now, cooling = self.database.now, self._cooling(cool_down_s)
        due = [
            (row.due_at, row.connection_id, row)
            for row in self.database.tokens.credentials.values()
            if row.due_at is not None
            and row.due_at <= now
            and (cursor is None or (row.due_at, row.connection_id) > cursor)
            and (not urgent_only or (row.urgent_at is not None and row.urgent_at <= now))
            and row.connection_id not in cooling
        ]
        page = sorted(due)[:limit]
        next_cursor = page[-1][:2] if len(page) == limit else None
        return DuePage([due_view(row, now) for _, _, row in page], next_cursor)

    def _cooling(self, cool_down_s: float) -> set[UUID | None]:
        """The connections whose refresh died of late (R14)."""
        now, cool_down = self.database.now, seconds(cool_down_s)
        entries = self.database.dead_letters.values()
        return {
            entry.connection_id
            for entry in entries
            if entry.open and entry.kind == REFRESH and abs(now - entry.last_at) < cool_down
        }

    @statement
    def left_behind(self, limit: int, cool_down_s: float) -> Sequence[DueConnection]:
        now, connections = self.database.now, self.database.tokens.connections
        cooling = self._cooling(cool_down_s)
        remaining = [
            row
            for row in self.database.tokens.rotations.values()
            if row.phase == "sent"
            and (row.lease_until < now or not self.database.is_open(row.session_id))
            and row.connection_id not in cooling
        ]
        return [
            DueConnection(
                row.connection_id, connections[row.connection_id].key, row.from_generation, 1, True, False
            )
            for row in sorted(remaining, key=lambda row: row.started_at)[:limit]
        ]

    @statement
    def postpone(self, connection_id: UUID, generation: int, due_in_s: float | None) -> None:
        row = self.database.tokens.credentials.get(connection_id)
        if row is not None and row.generation == generation:
            row.due_at = shifted(self.database.now, due_in_s)
