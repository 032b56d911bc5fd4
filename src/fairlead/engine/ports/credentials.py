"""Connections, sealed credentials and the rotation rows that make one refresh per generation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

from fairlead.engine.ports.jobs import NewJob
from fairlead.engine.ports.values import Json


@dataclass(frozen=True, slots=True)
class ConnectionKey:
    """Names a connection: one tenant's account at one provider."""

    tenant: str
    provider: str
    bucket: str = "default"


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted record and the data key that opens it."""

    key_id: UUID
    blob: bytes


@dataclass(frozen=True, slots=True)
class Connection:
    """The part of a connection that rarely changes; nothing secret."""

    connection_id: UUID
    key: ConnectionKey
    variant: str | None
    account_id: str | None
    client_id: str
    endpoint: Mapping[str, str]
    settings: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Rotation:
    """A refresh in flight. *expired* and *age_s* are judged by the database's clock."""

    rotation_id: UUID
    from_generation: int
    epoch: int
    phase: Literal["intent", "sent", "unknown"]
    session_id: UUID
    owner_lost: bool  # its session was declared lost or has stopped
    expired: bool  # lease_until has passed
    age_sent_s: float | None  # since the SENT mark
    replays: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A connection with its sealed secrets, as read in one statement. Offsets are from the read."""

    connection: Connection
    state: Literal["active", "unknown", "needs_reauth", "revoked"]
    state_reason: str | None
    generation: int
    epoch: int
    sealed: Sealed
    refreshable: bool
    expires_in_s: float | None  # None: never expires
    urgent_in_s: float | None
    critical_in_s: float | None
    due_in_s: float | None
    refreshed_age_s: float | None  # since the last successful refresh
    expires_at: datetime | None
    rotation: Rotation | None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a new token ends and when to see to it, as offsets from the moment it was sent for."""

    expires_in_s: float | None
    urgent_in_s: float | None
    critical_in_s: float | None
    due_in_s: float | None


@dataclass(frozen=True, slots=True)
class NewCredential:
    """What upsert stores: a new connection, or a new grant for one that is there."""

    connection_id: UUID
    key: ConnectionKey
    variant: str | None
    account_id: str | None
    client_id: str
    endpoint: Mapping[str, str]
    settings: Mapping[str, Json]
    sealed: Sealed
    generation: int  # the generation this was sealed for; refused if another writer was faster
    refreshable: bool
    lifetime: Lifetime
    actor: str


@dataclass(frozen=True, slots=True)
class Intent:
    """'About to send generation g': committed before anything leaves."""

    connection_id: UUID
    rotation_id: UUID
    from_generation: int
    session_id: UUID
    lease_s: float
    replay: bool = False  # take over a rotation in phase unknown, to send once more
    recover: bool = False  # take over a rotation that was sent, never to send: to settle or judge it


@dataclass(frozen=True, slots=True)
class IntentGranted:
    """We own the rotation. *phase* is what we took over: ``intent`` or, to recover, ``sent``/``unknown``."""

    connection_id: UUID
    epoch: int
    replays: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """The answer of the send (*from_generation*, *epoch*), to be stored by compare-and-set."""

    connection_id: UUID
    rotation_id: UUID
    from_generation: int
    epoch: int
    sealed: Sealed
    refreshable: bool
    account_id: str | None
    sent_at: datetime
    lifetime: Lifetime
    actor: str


SettleVerdict = Literal["settled", "superseded"]


@dataclass(frozen=True, slots=True)
class DueConnection:
    """A credential that a scan should see to, and how urgently (policy decides the priority's name)."""

    connection_id: UUID
    key: ConnectionKey
    generation: int
    priority: int
    reason: Literal["due", "rotation", "notice", "expired"]


class CredentialStore(Protocol):
    """Connections, sealed credentials and the rotation rows. Each method is one atomic statement.

    Methods marked *batched* may be called by thousands of tasks at once: the adapter sends those that
    wait together as one statement.
    """

    async def upsert(self, new: NewCredential) -> tuple[UUID, int]:
        """Store a connection or a new grant in place; any rotation in flight loses (StaleWrite on a race)."""
        ...

    async def read(self, key: ConnectionKey) -> Credential | None:
        """Batched."""
        ...

    async def read_id(self, connection_id: UUID) -> Credential | None:
        """Batched."""
        ...

    async def claim(self, intent: Intent) -> IntentGranted | None:
        """Batched. INTENT: None when the generation moved, or another live owner holds the rotation."""
        ...

    async def mark_sent(self, connection_id: UUID, rotation_id: UUID) -> datetime | None:
        """Batched. SENT by compare-and-set, the database's now; None: not ours any more, so do not send."""
        ...

    async def release(self, connection_id: UUID, rotation_id: UUID) -> bool:
        """Batched. Give up a rotation that changed nothing (not sent, or answered 'not processed')."""
        ...

    async def settle(self, settlement: Settlement) -> SettleVerdict:
        """Batched. The new generation, its audit record and the end of the rotation, at once."""
        ...

    async def mark_unknown(self, connection_id: UUID, rotation_id: UUID, reason: str) -> bool:
        """The rotation's outcome is unknown: credential and rotation say so; the token is still served."""
        ...

    async def condemn(
        self,
        connection_id: UUID,
        *,
        from_generation: int,
        rotation_id: UUID | None,
        reason: str,
        notice: NewJob | None,
    ) -> bool:
        """needs_reauth by compare-and-set on the generation, with audit and notice job; False: a loser's try."""
        ...

    async def withhold(self, settlement: Settlement, reason: str, withheld_id: UUID) -> None:
        """Keep an answer that cannot be published, sealed (R12)."""
        ...

    async def due(self, limit: int, after: tuple[datetime, UUID] | None) -> tuple[list[DueConnection], Any]:
        """Credentials due now in order of due_at, and rotations left behind; second: where to go on."""
        ...

    async def postpone(self, connection_id: UUID, generation: int, due_in_s: float | None) -> None:
        """Set when scans look at this credential again (a notice was given, a cool-down runs)."""
        ...

    async def search(
        self, *, tenant: str | None, provider: str | None, state: str | None, limit: int
    ) -> list[Credential]: ...

    async def revoke(self, connection_id: UUID, *, actor: str, reason: str) -> bool: ...

    async def remove(self, connection_id: UUID, *, actor: str) -> bool: ...

    async def counts(self) -> Mapping[str, int]:
        """Connections by state."""
        ...

    async def sealed_under(self, key_ids: Sequence[UUID], limit: int) -> list[tuple[UUID, str, int, Sealed]]:
        """Records to re-seal: (connection_id, tenant, generation, sealed)."""
        ...

    async def reseal(self, connection_id: UUID, old: Sealed, new: Sealed) -> bool:
        """Replace by compare-and-set on the old record; False: it has moved on, which is as good."""
        ...

    async def invalidations(self, on_moved: Callable[[UUID], None]) -> Callable[[], Awaitable[None]]:
        """Call *on_moved* with connections whose credential moved in any process (a hint, never truth)."""
        ...
