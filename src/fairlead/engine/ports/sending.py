"""One request to a token endpoint, and the leave to send it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from fairlead.engine.ports.http import HttpAnswer, NoAnswer
from fairlead.engine.ports.values import Json
from fairlead.policy.blast_radius import Reach
from fairlead.secret import Secret


@dataclass(frozen=True, slots=True)
class TokenCall:
    """One request to a token, revoke or test endpoint, fully built. What it holds is never logged."""

    url: str
    headers: Mapping[str, Secret]
    form: Mapping[str, Secret]
    deadline_s: float
    reuse_connection: bool
    method: Literal["POST", "GET", "DELETE"] = "POST"
    json_body: str | None = field(default=None, repr=False)  # in place of the form


class TokenTransport(Protocol):
    """Sends a token request once; knows exactly whether it left (D7)."""

    async def send(
        self, call: TokenCall, before_sent: Callable[[], Awaitable[None]]
    ) -> HttpAnswer | NoAnswer:
        """POST; *before_sent* is awaited after connect and TLS and before the first byte, and what it
        raises is raised here with nothing sent."""
        ...


@dataclass(frozen=True, slots=True)
class EndpointPermit:
    """Permission to send one request to a token endpoint; *probe*: it decides the breaker or the pause."""

    probe: bool = False
    dirty: bool = False  # something stands against this endpoint: a success must be written


@dataclass(frozen=True, slots=True)
class EndpointRefusal:
    """No permission: *by* names the guard.

    "connection" is the back-off of the one connection that asked; "busy": the guards could not be looked at.
    """

    by: Literal["connection", "rate", "breaker", "pause", "busy"]
    retry_after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """A token endpoint as its limits see it.

    *host* is set where the connections of one app have hosts of their own: health and refusals are counted
    there. *account* is set where the provider counts the rate per account.
    """

    provider: str
    client_id: str
    host: str = ""
    account: str = ""

    @property
    def place(self) -> str:
        """The name under which health and refused secrets are counted."""
        return f"{self.client_id} {self.host}" if self.host else self.client_id

    @property
    def bucket(self) -> str:
        """The name under which the rate is counted."""
        return f"{self.client_id} account {self.account}" if self.account else self.client_id


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """First guesses from the profile; None: no rate limit."""

    per_s: float | None
    burst: float
    breaker_failures: int = 10
    open_s: float = 60.0
    open_max_s: float = 600.0
    probe_s: float = 60.0  # how long the one probe may take before another may be sent
    backoff_s: float = 1.0  # of one connection after its first failure; doubles up to open_s


@dataclass(frozen=True, slots=True)
class EndpointAsk:
    """One connection's request for permission to refresh *generation*.

    *secret_fingerprint* None: the secret is the connection's own, so no pause of the app applies to it.
    *session_id*: the process. *at_once*: a person asks, so the connection's back-off does not hold it.
    """

    key: EndpointKey
    limits: EndpointLimits
    connection_id: UUID
    generation: int
    secret_fingerprint: str | None
    session_id: UUID | None = None
    at_once: bool = False


PAUSE_LOOK_S = 60.0
"""When a connection asks again at the latest whose app is paused: the pause may be lifted by then."""


def endpoint_answer(row: Any, limits: EndpointLimits) -> EndpointPermit | EndpointRefusal:
    """Return what one ask of a group gets: permits go to the first, the rest is told its own turn.

    Args:
        row: What ``endpoint_take`` gives for it.
        limits: Those of the ask.
    """
    if row["held_s"] is not None:
        return EndpointRefusal("connection", row["held_s"], f"its last refresh failed: {row['reason']}")
    if row["turn"] < row["granted"]:
        return EndpointPermit(probe=row["probe"], dirty=row["dirty"])
    reason, wait_s = row["reason"] or "the token endpoint was ill", max(1.0, row["retry_after_s"] or 1.0)
    if row["guard"] == "pause":
        return EndpointRefusal("pause", min(PAUSE_LOOK_S, wait_s), f"paused: {reason}")
    if row["guard"] == "breaker":
        return EndpointRefusal("breaker", wait_s, f"breaker open: {reason}")
    wait_s = (row["turn"] + 1 - row["level"]) / limits.per_s if limits.per_s else 1.0
    return EndpointRefusal("rate", max(wait_s, 0.01), "the token endpoint's rate is used up")


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """What a response closed to others or opened to them again, under which name.

    *news* is False where it was closed before. *said_by*: some of the connections, or hosts, that closed it.
    """

    client_id: str
    state: Literal["open", "paused", "closed"]
    for_s: float = 0.0
    news: bool = True
    said_by: tuple[str, ...] = ()


class EndpointGate(Protocol):
    """Rate, breaker and pause of token endpoints, and the back-off of connections, for the whole fleet."""

    async def admit(self, ask: EndpointAsk) -> EndpointPermit | EndpointRefusal:
        """Return a permit, or which guard refused and when to ask again. Batched."""
        ...

    async def record(
        self, ask: EndpointAsk, permit: EndpointPermit, reach: Reach, reason: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        """Apply what the response to a permitted request may stop (policy/blast_radius.py).

        *hint_s* is the wait that the response asked for. Returns what changed for others because of it.
        """
        ...

    async def resume(self, key: EndpointKey) -> bool:
        """End breaker, pause and debt of *key*, and the back-offs of its app; False if there was none."""
        ...

    async def backoff(self, connection_id: UUID, generation: int) -> Mapping[str, Json]:
        """Return *held_s* and *held_for* (why) of what holds up the next refresh of this connection alone."""
        ...

    async def search(self) -> list[Mapping[str, Json]]: ...

    async def prune(self, older_than_s: float) -> int:
        """Delete what no refresh has asked about for so long, whatever its state; return how much."""
        ...
