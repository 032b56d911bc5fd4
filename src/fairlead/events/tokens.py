"""Events of credentials and token endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class TokenRefreshed(Event):
    """A new generation of a credential was stored.

    Attributes:
        waited_s: Seconds from the request for a token until it was stored.
        recovered: The token came from the journal, not from a new request.
    """

    name = "token_refreshed"
    tenant: str
    provider: str
    account: str
    connection_id: UUID
    generation: int
    waited_s: float
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class TokenRefreshFailed(Event):
    """A refresh failed; *category* decides whether and when it is retried."""

    name = "token_refresh_failed"
    level = "warning"
    tenant: str
    provider: str
    account: str
    connection_id: UUID
    code: str
    category: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class TokenOutcomeUnknown(Event):
    """A refresh was sent and its outcome is unknown; the replay policy decides what follows."""

    name = "token_outcome_unknown"
    level = "warning"
    tenant: str
    provider: str
    account: str
    connection_id: UUID
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class NeedsReauth(Event):
    """A connection needs a new authorisation by the customer; *link* starts it."""

    name = "needs_reauth"
    level = "warning"
    tenant: str
    provider: str
    account: str
    connection_id: UUID
    reason: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class TokenEndpointStateChanged(Event):
    """The token endpoint of the app or host in *client_id* changed its state.

    Attributes:
        state: ``open`` (unavailable), ``paused`` or ``closed`` (healthy again).
        open_s: Seconds until the next attempt may be made.
        reported_by: The first connections or hosts with responses that changed it.
    """

    name = "token_endpoint_state_changed"
    level = "warning"
    provider: str
    client_id: str
    state: str
    reason: str
    open_s: float | None = None
    reported_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SupersededWriteRefused(Event):
    """The outcomes of *count* jobs were not stored, because their leases had passed to another worker."""

    name = "superseded_write_refused"
    level = "warning"
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class ServedStale(Event):
    """The database is unavailable, so calls of this connection use cached data that is *age_s* seconds old.

    Cached data is used for five minutes at most, and no token past its expiry.

    Attributes:
        data: ``connection`` (its settings) or ``token``.
    """

    name = "served_stale"
    tenant: str
    provider: str
    data: str
    age_s: float
