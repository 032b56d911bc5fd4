"""Requests to token endpoints, and the permits to send them.

Permits for token endpoints are granted in PostgreSQL, not by the gate of calls in Redis (docs/adr/0018):
every refresh writes to PostgreSQL anyway, so its permit costs no further round trip, and refreshes continue
without Redis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.engine.ports.http import HttpResponse, NoResponse
from fairlead.engine.ports.values import Json
from fairlead.policy.calls.blast_radius import Reach


@dataclass(frozen=True, slots=True)
class TokenCall:
    """One request to a token, revoke or test endpoint, fully built. Its contents are never logged."""

    url: str
    headers: Mapping[str, Secret]
    form: Mapping[str, Secret]
    deadline_s: float
    reuse_connection: bool
    method: Literal["POST", "GET", "DELETE"] = "POST"
    json_body: str | None = field(default=None, repr=False)  # in place of the form


class TokenTransport(Protocol):
    """The sender of token requests, each at most once; it knows whether a request was sent. Spec: D7."""

    async def send(
        self, call: TokenCall, before_sent: Callable[[], Awaitable[None]]
    ) -> HttpResponse | NoResponse:
        """Send *call* and return the whole response.

        Awaits *before_sent* once connected, before the first byte. An error of it is raised, with nothing
        sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class EndpointPermit:
    """A permit to send one request to a token endpoint.

    Attributes:
        probe: Whether the result of this request opens or closes the breaker or the pause.
        dirty: Whether failures are recorded for this endpoint, so that a success must be written.
    """

    probe: bool = False
    dirty: bool = False


@dataclass(frozen=True, slots=True)
class EndpointRefusal:
    """A refusal of a permit.

    Attributes:
        by: What refused it. "connection" is the back-off of the one connection; "busy": the rows were locked.
    """

    by: Literal["connection", "rate", "breaker", "pause", "busy"]
    retry_after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """The names under which the limits of a token endpoint are counted.

    Attributes:
        host: Set if the connections of one app have hosts of their own; health and refusals are counted per
            host.
        account: Set if the provider counts the rate per account.
    """

    provider: str
    client_id: str
    host: str = ""
    account: str = ""

    @property
    def health_key(self) -> str:
        """The name under which health and refused secrets are counted."""
        return f"{self.client_id} {self.host}" if self.host else self.client_id

    @property
    def rate_key(self) -> str:
        """The name under which the rate is counted."""
        return f"{self.client_id} account {self.account}" if self.account else self.client_id


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """The initial limits, from the provider's profile. *per_s* None: no rate limit."""

    per_s: float | None
    burst: float
    breaker_failures: int = 10
    open_s: float = 60.0
    open_max_s: float = 600.0
    probe_s: float = 60.0  # how long the one probe may take before another may be sent
    backoff_s: float = 1.0  # back-off of a connection after its first failure; doubles up to open_s


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """One connection's request for a permit to refresh *generation*.

    Attributes:
        secret_fingerprint: Identifies the app's client secret, which a response may reject. None: the secret
            is the connection's own, so no pause of the app applies.
        session_id: The process that requests the permit.
        at_once: Whether a person requested the refresh, so that the connection's back-off does not apply.
    """

    key: EndpointKey
    limits: EndpointLimits
    connection_id: UUID
    generation: int
    secret_fingerprint: str | None
    session_id: UUID | None = None
    at_once: bool = False


PAUSE_POLL_S = 60.0
"""The longest wait while an app is paused, because an operator may end the pause."""


def permit_from_row(row: Any, limits: EndpointLimits) -> EndpointPermit | EndpointRefusal:
    """Return the result of one request of a group; beyond the free permits, it is refused by the rate.

    Args:
        row: The row that ``endpoint_take`` returned for it.
        limits: The limits of the request.
    """
    if row["held_s"] is not None:
        return EndpointRefusal("connection", row["held_s"], f"its last refresh failed: {row['reason']}")
    if row["turn"] < row["granted"]:
        return EndpointPermit(probe=row["probe"], dirty=row["dirty"])
    reason, wait_s = (
        row["reason"] or "the token endpoint was unhealthy",
        max(1.0, row["retry_after_s"] or 1.0),
    )
    if row["guard"] == "pause":
        return EndpointRefusal("pause", min(PAUSE_POLL_S, wait_s), f"paused: {reason}")
    if row["guard"] == "breaker":
        return EndpointRefusal("breaker", wait_s, f"breaker open: {reason}")
    wait_s = (row["turn"] + 1 - row["level"]) / limits.per_s if limits.per_s else 1.0
    return EndpointRefusal("rate", max(wait_s, 0.01), "the token endpoint's rate is used up")


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """A token endpoint, app or rate that a response closed for other connections, or reopened.

    Attributes:
        news: Whether to report it; False if it was closed before.
        said_by: Some of the connections or hosts with the responses that closed it.
    """

    client_id: str
    state: Literal["open", "paused", "closed"]
    for_s: float = 0.0
    news: bool = True
    said_by: tuple[str, ...] = ()


class EndpointGate(Protocol):
    """Rate, breaker and pause of token endpoints, and the back-off of connections, for the whole fleet."""

    async def admit(self, request: PermitRequest) -> EndpointPermit | EndpointRefusal:
        """Return a permit, or the guard that refused and when to try again. Batched."""
        ...

    async def record(
        self, request: PermitRequest, permit: EndpointPermit, reach: Reach, reason: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        """Apply the response to a permitted request, by the rules of policy/calls/blast_radius.py.

        Args:
            reach: How much the response concerns: the connection, its app, or the endpoint.
            reason: What the response said, for operators.
            hint_s: The delay that the response requested, in seconds.

        Returns:
            The change for other connections. None: there is none.
        """
        ...

    async def resume(self, key: EndpointKey) -> bool:
        """End the breaker, pause and debt of *key* and the back-offs of its app; return False without any."""
        ...

    async def backoff(self, connection_id: UUID, generation: int) -> Mapping[str, Json]:
        """Return the back-off of a connection: the seconds left as *held_s*, and the reason as *held_for*."""
        ...

    async def search(self) -> list[Mapping[str, Json]]:
        """Return the stored state of all endpoints, as rows for operators."""
        ...

    async def prune(self, older_than_s: float) -> int:
        """Delete endpoints and back-offs unused for so long, whatever their state; return how many."""
        ...
