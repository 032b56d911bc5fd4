"""Connections, credentials, refreshes in flight and token endpoints as the tables have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from fairlead.engine.ports import (
    AuditRecord,
    ConnectionKey,
    CredentialState,
    EndpointKey,
    Json,
    Lifetime,
    Sealed,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class ConnectionRow:
    """Table ``connection``."""

    connection_id: UUID
    key: ConnectionKey
    variant: str | None
    account_id: str | None
    client_id: str
    endpoint: Mapping[str, str]
    settings: Mapping[str, Json]
    created_at: datetime
    updated_at: datetime

    @property
    def version(self) -> int:
        """Its last change in microseconds, as the view ``credential_detail`` has it."""
        return (self.updated_at - _EPOCH) // _MICROSECOND

    def change(self, now: datetime) -> None:
        """Set a newer version, even if the clock stands still."""
        self.updated_at = max(now, self.updated_at + _MICROSECOND)


@dataclass(slots=True)
class CredentialRow:
    """Table ``credential``."""

    connection_id: UUID
    key: ConnectionKey
    sealed: Sealed
    refreshable: bool
    state_at: datetime
    state: CredentialState = "active"
    state_reason: str | None = None
    generation: int = 1
    settled_epoch: int = 0
    expires_at: datetime | None = None
    urgent_at: datetime | None = None
    critical_at: datetime | None = None
    due_at: datetime | None = None
    refreshed_at: datetime | None = None
    granted_at: datetime | None = None
    last_sent_at: datetime | None = None

    @property
    def usable(self) -> bool:
        """Whether a refresh may be tried."""
        return self.state in ("active", "unknown")

    def live(self, lifetime: Lifetime, since: datetime) -> None:
        """Set the instants of a token that was received at *since*."""
        self.expires_at = shifted(since, lifetime.expires_in_s)
        self.urgent_at = shifted(since, lifetime.urgent_in_s)
        self.critical_at = shifted(since, lifetime.critical_in_s)
        self.due_at = shifted(since, lifetime.due_in_s)

    def become(
        self,
        state: CredentialState,
        reason: str | None,
        now: datetime,
    ) -> None:
        """Change to *state*."""
        self.state, self.state_reason, self.state_at = state, reason, now


@dataclass(slots=True)
class RotationRow:
    """Table ``refresh_attempt``."""

    connection_id: UUID
    attempt_id: UUID
    from_generation: int
    epoch: int
    session_id: UUID
    lease_until: datetime
    started_at: datetime
    phase: Literal["intent", "sent", "unknown"] = "intent"
    sent_at: datetime | None = None
    replays: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Table ``audit``."""

    at: datetime
    record: AuditRecord


@dataclass(slots=True)
class EndpointRow:
    """Table ``endpoint_gate``."""

    refilled_at: datetime
    changed_at: datetime
    permits: float = 0.0
    state: Literal["closed", "open", "paused"] = "closed"
    reason: str | None = None
    failures: int = 0
    openings: int = 0
    open_until: datetime | None = None
    probe_until: datetime | None = None
    secret_fingerprint: str | None = None
    failing: tuple[str, ...] = ()
    limited: tuple[UUID, ...] = ()
    refusing: tuple[str, ...] = ()


@dataclass(slots=True)
class BackoffRow:
    """A row of the table ``refresh_backoff``."""

    generation: int
    failures: int
    retry_at: datetime
    reason: str


@dataclass(slots=True)
class TokenTables:
    """Everything about tokens in one `MemoryDatabase`."""

    connections: dict[UUID, ConnectionRow] = field(default_factory=dict)
    credentials: dict[UUID, CredentialRow] = field(default_factory=dict)
    rotations: dict[UUID, RotationRow] = field(default_factory=dict)
    endpoints: dict[EndpointKey, EndpointRow] = field(default_factory=dict)
    backoffs: dict[UUID, BackoffRow] = field(default_factory=dict)
    audit: list[AuditRow] = field(default_factory=list)
    timeline: str = "1/1"
    """It changes when a standby is promoted. Spec: R11."""
    sends: int = 0
    """The sequence ``send_epoch``: its last number."""

    def next_epoch(self, now: datetime, above: int = 0) -> int:
        """Return *now* in microseconds, raised above the sequence and *above*."""
        self.sends += 1
        return max(self.sends, above + 1, (now - _EPOCH) // _MICROSECOND)


def shifted(moment: datetime, offset_s: float | None) -> datetime | None:
    """Return *moment* moved by *offset_s*; None: never."""
    return None if offset_s is None else moment + timedelta(seconds=offset_s)


def until_s(moment: datetime | None, now: datetime) -> float | None:
    """Return the seconds until *moment*; None: never."""
    return None if moment is None else (moment - now).total_seconds()
