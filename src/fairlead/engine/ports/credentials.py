"""Sealed credentials, and the rotation rows that allow one refresh per generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

from fairlead.engine.ports.connection import Connection, ConnectionKey, Sealed, SettingsChange
from fairlead.engine.ports.sending import EndpointPermit, EndpointRefusal, PermitRequest
from fairlead.engine.ports.values import Json

CredentialState = Literal["active", "unknown", "needs_reauth", "revoked"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """A refresh in flight. All ages and *expired* are by the database's clock.

    Attributes:
        from_generation: The generation that is spent.
        epoch: The number of the send; a later send of the connection has a larger one.
        phase: INTENT before the request is sent, SENT after it, UNKNOWN if no outcome is known.
        session_id: The process that owns the refresh.
        replays: How often the request was sent again after an unknown outcome.
    """

    attempt_id: UUID
    from_generation: int
    epoch: int
    phase: Literal["intent", "sent", "unknown"]
    session_id: UUID
    owner_lost: bool  # its session has stopped or was declared lost
    expired: bool  # lease_until has passed
    age_sent_s: float | None  # since the first SENT mark
    age_last_sent_s: float | None  # since the latest
    replays: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A connection with its sealed secrets, read in one statement.

    Each ``..._in_s`` is in seconds from *read_at*, and negative once that time has passed.

    Attributes:
        generation: Grows with each new token of the connection.
        refreshable: Whether it has a refresh token.
        urgent_in_s: When its refresh is urgent.
        critical_in_s: When its refresh is critical, because it expires soon.
        due_in_s: When a scan returns it; None: never.
        rotation: The refresh in flight; None: none is.
    """

    connection: Connection
    state: CredentialState
    state_reason: str | None
    generation: int
    settled_epoch: int  # of the send that returned this token; 0 for a grant from a person
    sealed: Sealed
    refreshable: bool
    read_at: datetime  # the database's now
    expires_in_s: float | None  # None: never expires
    urgent_in_s: float | None
    critical_in_s: float | None
    due_in_s: float | None
    refreshed_age_s: float | None  # since the last successful refresh
    expires_at: datetime | None
    rotation: Rotation | None
    granted_at: datetime | None = None  # by a person or an import; None: before this was recorded


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a new token expires and when to refresh it, in seconds from the time its request was sent."""

    expires_in_s: float | None
    urgent_in_s: float | None
    critical_in_s: float | None
    due_in_s: float | None


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A new connection, or a new grant for an existing one.

    Attributes:
        generation: The generation that *sealed* was sealed for; 1 for a new connection.
        refreshable: Whether it has a refresh token.
        actor: The author of the change, for the audit record *audit_id*.
        state: The initial state; an import keeps the state of the exporting database.
    """

    connection_id: UUID
    key: ConnectionKey
    variant: str | None
    account_id: str | None
    client_id: str
    endpoint: Mapping[str, str]
    settings: Mapping[str, Json]
    sealed: Sealed
    generation: int
    refreshable: bool
    lifetime: Lifetime
    actor: str
    audit_id: UUID
    state: CredentialState = "active"
    state_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """The record that this process is about to spend *from_generation*, committed before anything is sent.

    Attributes:
        lease_s: How long other processes leave the refresh to this one.
    """

    connection_id: UUID
    attempt_id: UUID
    from_generation: int
    session_id: UUID
    lease_s: float


class Claim(NamedTuple):
    """The right to send once: the epoch of the send, and the permit of the token endpoint."""

    epoch: int
    permit: EndpointPermit


class SentMark(NamedTuple):
    """When a token was first sent, and when this send was marked, by the database's clock."""

    first_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class Settlement:
    """The response to the send (*from_generation*, *epoch*), to be stored by compare-and-set.

    Attributes:
        defer_s: How long after the first send it is superseded by a later send of the same token, because the
            provider issues the newer token to that one. None: never.
        expected_sealed: The record that it replaces, which must still be stored. None: any record.
    """

    connection_id: UUID
    attempt_id: UUID
    from_generation: int
    epoch: int
    sealed: Sealed
    refreshable: bool
    account_id: str | None
    sent_at: datetime
    lifetime: Lifetime
    actor: str
    audit_id: UUID
    defer_s: float | None = None
    expected_sealed: Sealed | None = None


SettleVerdict = Literal["settled", "superseded"]
"""Whether a response was stored, or the database had a newer token or another owner."""


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """A send without a known outcome: the provider may have spent the token or not.

    Attributes:
        due_in_s: In how many seconds scans return the connection, to resolve the send. None: they never do.
    """

    connection_id: UUID
    attempt_id: UUID
    reason: str
    due_in_s: float | None
    audit_id: UUID


@dataclass(frozen=True, slots=True)
class ReauthRequirement:
    """The change of a credential to needs_reauth.

    Attributes:
        from_generation: The generation that must still be the current one.
        attempt_id: The refresh that failed. None: no refresh may be in flight.
        notice_id: The id of the job that notifies the tenant.
        notice_args: The args of that job.
    """

    connection_id: UUID
    from_generation: int
    attempt_id: UUID | None
    reason: str
    notice_id: UUID
    notice_args: Mapping[str, Json]
    audit_id: UUID


class GrantState(NamedTuple):
    """The state of a connection's grant.

    Attributes:
        is_gone: Whether the connection needs a new grant: it is in needs_reauth, or revoked.
        changed_s: How long ago the state of the connection changed.
    """

    connection_id: UUID
    is_gone: bool
    changed_s: float


@dataclass(frozen=True, slots=True)
class DueConnection:
    """A credential that a scan returned, so that a job refreshes it.

    Attributes:
        priority: The priority of that job.
        expired: Whether its access token has expired.
    """

    connection_id: UUID
    key: ConnectionKey
    generation: int
    priority: int
    refreshable: bool
    expired: bool


@dataclass(frozen=True, slots=True)
class DuePage:
    """One page of a scan. *next_cursor* is None on the last page."""

    connections: Sequence[DueConnection]
    next_cursor: tuple[datetime, UUID] | None


class CredentialStore(Protocol):
    """Connections, sealed credentials and the rotation rows. Each method is one atomic statement."""

    async def create(self, new: NewCredential) -> bool:
        """Store a new connection; return False if one with this key exists."""
        ...

    async def replace(self, new: NewCredential) -> bool:
        """Store a new grant, superseding any refresh in flight. Return False if another writer was faster."""
        ...

    async def read(self, key: ConnectionKey) -> Credential | None:
        """Return the connection with *key*. Batched."""
        ...

    async def read_id(self, connection_id: UUID) -> Credential | None:
        """Return the connection with this id. Batched."""
        ...

    async def claim(self, intent: Intent, request: PermitRequest) -> Claim | EndpointRefusal | None:
        """Take a permit, as `EndpointGate.admit` does, and commit INTENT, in one statement. Batched.

        Without a permit nothing is claimed.

        The epoch orders the sends of one token, and all sends across a restore. It is the time of the send in
        microseconds by the database's clock, raised above every earlier epoch of the connection and above the
        floor of `raise_epochs`, so a clock that is set back does no harm.

        Returns:
            The claim; the refusal of a permit; or None if the generation has changed, or the rotation is held
            or was sent. Then no permit is used.

        Spec: R51.
        """
        ...

    async def claim_replay(self, intent: Intent, replays: int) -> int | None:
        """Commit INTENT to send a request of unknown outcome again.

        Args:
            intent: The owner of the new send.
            replays: How often it was sent again so far, as the caller read it.

        Returns:
            The new epoch; None if another process sends it again, or has done so since.
        """
        ...

    async def mark_sent(self, connection_id: UUID, attempt_id: UUID) -> SentMark | None:
        """Mark the rotation as SENT by compare-and-set. Batched.

        Return None if the rotation has another owner; then the request must not be sent.
        """
        ...

    async def mark_late(self, connection_id: UUID, from_generation: int, left_at: datetime) -> int | None:
        """Return a new epoch for a send that left at *left_at*, long after its mark.

        The epoch is above those of all sends that were marked before *left_at*. None if the token was sent
        again since or is about to be, because that send will have the newer response. None, too, if the token
        is neither in rotation nor the last one that was.
        """
        ...

    async def release(self, connection_id: UUID, attempt_id: UUID) -> bool:
        """End a rotation after a send that changed nothing (not sent, or not processed). Batched."""
        ...

    async def settle(self, settlement: Settlement) -> SettleVerdict:
        """Store the new generation and its audit record, and end the rotation. Batched."""
        ...

    async def mark_unknown(self, unknown: UnknownOutcome) -> bool:
        """Mark the credential and its rotation as of unknown outcome; the token is still served.

        Return False if the rotation has another owner, or was not sent.
        """
        ...

    async def require_reauth(self, requirement: ReauthRequirement) -> bool:
        """Set needs_reauth by compare-and-set, with an audit record and a notification job.

        Return False for another generation or another owner.
        """
        ...

    async def await_grant(self, key: ConnectionKey) -> GrantState | None:
        """Return the state of a connection's grant, and hold its jobs if it needs a new one.

        They are held until it has a new grant, or is removed. This does not wait.

        Returns:
            The state of the grant; None if there is no such connection.
        """
        ...

    async def due(
        self, *, urgent_only: bool, cool_down_s: float, cursor: tuple[datetime, UUID] | None, limit: int
    ) -> DuePage:
        """Return a page of credentials to refresh, in the order in which they are due.

        Args:
            urgent_only: Whether to return only those with an urgent refresh.
            cool_down_s: Leaves out those with a refresh job that was discarded in the last seconds.
            cursor: `DuePage.next_cursor` of the page before. None: the first page.
            limit: The most credentials of a page.
        """
        ...

    async def left_behind(self, limit: int, cool_down_s: float) -> Sequence[DueConnection]:
        """Return credentials with a refresh that a dead process has sent. *cool_down_s* is as in due()."""
        ...

    async def postpone(self, connection_id: UUID, generation: int, due_in_s: float | None) -> None:
        """Set when scans return this credential again; None: never."""
        ...

    async def search(
        self, *, tenant: str | None, provider: str | None, state: str | None, limit: int
    ) -> list[Credential]: ...

    async def revoke(
        self, connection_id: UUID, tenant: str, *, actor: str, reason: str, audit_id: UUID
    ) -> bool:
        """Mark a connection as revoked. Return False if it was, or *tenant* has no such connection."""
        ...

    async def remove(self, connection_id: UUID, tenant: str, *, actor: str, audit_id: UUID) -> bool:
        """Delete a connection with its secrets. Return False if *tenant* has no such connection."""
        ...

    async def configure(self, change: SettingsChange, *, actor: str, audit_id: UUID) -> bool:
        """Store other settings. Return False if another writer was faster, or the connection was removed."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return the number of connections by state."""
        ...

    async def timeline(self) -> str:
        """Return the name of the database's history, which changes with a fail-over, a restore or a restart.

        Raises:
            DependencyUnavailableError: The server is a stand-by.

        Spec: R11.
        """
        ...

    async def raise_epochs(self, floor: int) -> None:
        """Give every later send an epoch above *floor*."""
        ...
