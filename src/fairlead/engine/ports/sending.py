"""One request to a token endpoint, and the leave to send it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fairlead.engine.ports.http import HttpAnswer, NoAnswer
from fairlead.engine.ports.values import Json
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
    """Leave to send one request to a token endpoint; *probe* means it decides the breaker."""

    probe: bool = False
    dirty: bool = False  # the breaker counts failures: a success must be written


@dataclass(frozen=True, slots=True)
class EndpointRefusal:
    """No leave: *by* names the guard (rate, breaker, pause)."""

    by: Literal["rate", "breaker", "pause"]
    retry_after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """A token endpoint as its limits see it."""

    provider: str
    client_id: str


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """First guesses from the profile; None: no rate limit."""

    per_s: float | None
    burst: float
    breaker_failures: int = 10
    open_s: float = 60.0
    open_max_s: float = 600.0
    probe_s: float = 60.0  # how long the one probe may take before another may be sent


class EndpointGate(Protocol):
    """Rate, breaker and pause of token endpoints, shared by the fleet (R13)."""

    async def admit(
        self, key: EndpointKey, limits: EndpointLimits, secret_fingerprint: str | None
    ) -> EndpointPermit | EndpointRefusal:
        """Batched. One permit, or who refused and when to come again.

        *secret_fingerprint* None: whoever asks has his pauses elsewhere; one here neither holds him nor ends.
        """
        ...

    async def record(
        self, key: EndpointKey, limits: EndpointLimits, permit: EndpointPermit, healthy: bool, reason: str
    ) -> float | None:
        """The destination's health; returns how long the breaker opened by this, if it did."""
        ...

    async def penalise(self, key: EndpointKey, limits: EndpointLimits, hint_s: float) -> None:
        """The provider answered "too many": nobody sends for *hint_s*, then at the rate again."""
        ...

    async def pause(self, key: EndpointKey, reason: str, secret_fingerprint: str) -> bool:
        """The client id or secret was refused: nobody sends until resumed or until the secret changes."""
        ...

    async def resume(self, key: EndpointKey) -> bool: ...

    async def search(self) -> list[Mapping[str, Json]]: ...
