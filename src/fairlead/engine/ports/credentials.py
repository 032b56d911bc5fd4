"""Connections, sealed credentials and the rotation rows that make one refresh per generation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

from fairlead.engine.ports.sending import EndpointAsk, EndpointPermit, EndpointRefusal
from fairlead.engine.ports.values import Json


class ConnectionKey(NamedTuple):
    """Names a connection: one tenant's account at one provider. Each call looks things up by it."""

    tenant: str
    provider: str
    account: str = "default"


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted record and the data key that opens it."""

    key_id: UUID
    blob: bytes


@dataclass(frozen=True, slots=True)
class LearntSlots:
    """How many calls may be in flight, as an answer told it, and since when that is known."""

    capacity: int
    version: int
    """Above the version of the connection: a pool takes the number over, until newer settings come."""


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
    version: int = 1
    """Grows with every change of it."""
    learnt: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Capacity and units a second of its limits, as answers told them under these settings; for the gate."""
    slots: LearntSlots | None = None
    """Told under these settings, too."""
    existed_s: float = field(default=math.inf, compare=False)
    """How old it was when it was read, or an older one to the same account; infinite: an hour or more, or
    unknown; for the gate."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What becomes of the settings of *connection*.

    *sealed* takes the place of the record *seen*, where the change says where its secrets may go.
    """

    connection: Connection
    after: Mapping[str, Json]
    seen: Sealed | None = None
    sealed: Sealed | None = None

    @property
    def new(self) -> Mapping[str, Json]:
        """Those that were not there, or were other."""
        before = self.connection.settings
        return {name: value for name, value in self.after.items() if (name, value) not in before.items()}

    @property
    def gone(self) -> list[str]:
        """The names of those that are there no more."""
        return sorted(self.connection.settings.keys() - self.after.keys())

    @property
    def is_one(self) -> bool:
        """Whether anything changes."""
        return bool(self.new or self.gone)


CredentialState = Literal["active", "unknown", "needs_reauth", "revoked"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """A refresh in flight. *expired* and *age_s* are judged by the database's clock."""

    attempt_id: UUID
    from_generation: int
    epoch: int
    phase: Literal["intent", "sent", "unknown"]
    session_id: UUID
    owner_lost: bool  # its session was declared lost or has stopped
    expired: bool  # lease_until has passed
    age_sent_s: float | None  # since the first SENT mark
    age_last_sent_s: float | None  # since the latest
    replays: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A connection with its sealed secrets, as read in one statement. Offsets are from the read."""

    connection: Connection
    state: CredentialState
    state_reason: str | None
    generation: int
    settled_epoch: int  # the send whose answer is live; 0 for a grant given by a person
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
    granted_at: datetime | None = None  # by a person or an import; None: before that was noted


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
    generation: int  # the one this was sealed for: 1 for a new connection
    refreshable: bool
    lifetime: Lifetime
    actor: str
    audit_id: UUID
    state: CredentialState = "active"
    """The state to begin in; an import keeps what the exporting database knew."""
    state_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """'About to send generation g': committed before anything leaves."""

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
    """When a token was sent first and last, this time, by the database's clock."""

    first_at: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class Settlement:
    """The answer of the send (*from_generation*, *epoch*), to be stored by compare-and-set.

    *seen*: the record that it replaces, which must still be there; None: whichever.
    *yields_s*: for so long after the first send it gives way to a later send of the same token, whose answer
    has the newer one; None: never.
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
    seen: Sealed | None = None


SettleVerdict = Literal["settled", "superseded"]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A send whose outcome is not known, and when something can be done about it."""

    connection_id: UUID
    attempt_id: UUID
    reason: str
    due_in_s: float | None
    audit_id: UUID


@dataclass(frozen=True, slots=True)
class ReauthRequirement:
    """needs_reauth for one generation. *attempt_id* None: no refresh may be in flight."""

    connection_id: UUID
    from_generation: int
    attempt_id: UUID | None
    reason: str
    notice_id: UUID
    notice_args: Mapping[str, Json]
    audit_id: UUID


class GrantState(NamedTuple):
    """What the store knows of the grant of a connection."""

    connection_id: UUID
    is_gone: bool
    """Whether it needs a new one: the connection is in needs_reauth, or revoked."""
    changed_s: float
    """How long ago the state of the connection changed last."""


@dataclass(frozen=True, slots=True)
class DueConnection:
    """A credential that a scan should see to, and how urgently."""

    connection_id: UUID
    key: ConnectionKey
    generation: int
    priority: int
    refreshable: bool
    expired: bool


@dataclass(frozen=True, slots=True)
class DuePage:
    """One page of a scan; *next_after* is where the next one starts, None at the end."""

    connections: Sequence[DueConnection]
    next_after: tuple[datetime, UUID] | None


class CredentialStore(Protocol):
    """Connections, sealed credentials and the rotation rows. Each method is one atomic statement."""

    async def create(self, new: NewCredential) -> bool:
        """Store a new connection; False if one of this name is there already."""
        ...

    async def replace(self, new: NewCredential) -> bool:
        """A new grant in place; any refresh in flight loses. False if another writer was faster."""
        ...

    async def read(self, key: ConnectionKey) -> Credential | None:
        """Batched."""
        ...

    async def read_id(self, connection_id: UUID) -> Credential | None:
        """Batched."""
        ...

    async def claim(self, intent: Intent, ask: EndpointAsk) -> Claim | EndpointRefusal | None:
        """Take a permit for *ask*, as `EndpointGate.admit` does, and commit INTENT in one statement. Batched.

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
        """INTENT to send again what was sent with unknown outcome, judged after *replays* of them.

        None if somebody else is at it, or has replayed it since: then there is something new to judge.
        """
        ...

    async def mark_sent(self, connection_id: UUID, attempt_id: UUID) -> SentMark | None:
        """Batched. SENT by compare-and-set, the database's now; None: not ours any more, so do not send."""
        ...

    async def mark_late(self, connection_id: UUID, from_generation: int, left_at: datetime) -> int | None:
        """The epoch of a send that left at *left_at*, long after its mark: above all that were marked before.

        None where another send of that token was marked since, or is about to be: that will be the newer one.
        None, too, where none is known, not even this: its token is neither being spent nor the last that was.
        """
        ...

    async def release(self, connection_id: UUID, attempt_id: UUID) -> bool:
        """Batched. Give up a rotation whose send changed nothing (not sent, or 'not processed')."""
        ...

    async def settle(self, settlement: Settlement) -> SettleVerdict:
        """Batched. The new generation, its audit record and the end of the rotation, at once."""
        ...

    async def mark_unknown(self, unknown: Unknown) -> bool:
        """Credential and rotation say so; the token is still served. False: not ours, or not sent."""
        ...

    async def require_reauth(self, requirement: ReauthRequirement) -> bool:
        """needs_reauth by compare-and-set, with audit and notice job. False: a loser's try."""
        ...

    async def await_grant(self, key: ConnectionKey) -> GrantState | None:
        """Hold the work of a connection whose grant is gone until it has a new one, or is removed.

        One whose grant is fine is left alone. None: there is no such connection.
        """
        ...

    async def due(
        self, *, urgent_only: bool, cool_down_s: float, after: tuple[datetime, UUID] | None, limit: int
    ) -> DuePage:
        """Credentials due now, in order of due_at; a dead refresh stays out until it has cooled down."""
        ...

    async def left_behind(self, limit: int, cool_down_s: float) -> Sequence[DueConnection]:
        """Return refreshes that were sent and whose owner is gone, without those that died too recently."""
        ...

    async def postpone(self, connection_id: UUID, generation: int, due_in_s: float | None) -> None:
        """When scans look at this credential again; None: never."""
        ...

    async def search(
        self, *, tenant: str | None, provider: str | None, state: str | None, limit: int
    ) -> list[Credential]: ...

    async def revoke(
        self, connection_id: UUID, tenant: str, *, actor: str, reason: str, audit_id: UUID
    ) -> bool:
        """The grant was given up. False if it was before, or *tenant* has no such connection."""
        ...

    async def remove(self, connection_id: UUID, tenant: str, *, actor: str, audit_id: UUID) -> bool:
        """Delete it with its secrets. False if *tenant* has no such connection."""
        ...

    async def configure(self, change: SettingsChange, *, actor: str, audit_id: UUID) -> bool:
        """Other settings for a connection. False if another writer was faster, or it is gone."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Connections by state."""
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
