"""Events of credentials and token endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class TokenRefreshed(Event):
    """A new generation is stored; *waited_s* from the ask, *sent_s* for the provider's part."""

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
    """A refresh did not succeed this time; *category* and *next_retry_s* say what follows."""

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
    """A refresh was sent and its outcome is not known; the replay policy decides what follows."""

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
    """Only the customer can heal this connection; *link* is where to send them."""

    name = "needs_reauth"
    level = "warning"
    tenant: str
    provider: str
    account: str
    connection_id: UUID
    reason: str
    link: str | None = None


@dataclass(frozen=True, slots=True)
class EndpointStateChanged(Event):
    """The token endpoint of the app or host in *client_id* is open, paused, or closed (healthy again).

    Attributes:
        open_s: Seconds until the next attempt may be made.
        said_by: The first connections or hosts whose responses closed it.
    """

    name = "endpoint_state"
    level = "warning"
    provider: str
    client_id: str
    state: str
    reason: str
    open_s: float | None = None
    said_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StaleWriteRefused(Event):
    """A superseded worker tried to write outcomes; they were refused."""

    name = "stale_write_refused"
    level = "warning"
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class ServedFromMemory(Event):
    """The database is away: calls of this connection go by the *what* that was read *age_s* ago.

    *what*: ``connection`` (its settings) or ``token``. For five minutes at most, and no token past its end.
    """

    name = "served_from_memory"
    tenant: str
    provider: str
    what: str
    age_s: float
