"""Events of the gate: degraded mode, breakers, overrides, maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class GateDegraded(Event):
    """This process keeps to its share of each limit: Redis does not answer, or somebody wants it so."""

    name = "gate_degraded"
    level = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class GateRestored(Event):
    """After *away_s* seconds limits are the fleet's again."""

    name = "gate_restored"
    away_s: float


@dataclass(frozen=True, slots=True)
class GateSlow(Event):
    """Redis took *took_s* seconds to answer; beyond 0.8 s this process keeps to its share."""

    name = "gate_slow"
    level = "warning"
    took_s: float


@dataclass(frozen=True, slots=True)
class GateWouldRefuse(Event):
    """A connection in observe mode: this call would have been refused, and was let through."""

    name = "gate_would_refuse"
    tenant: str
    provider: str
    reason: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class GateBreakerOpened(Event):
    """A destination fails: calls of this connection to *host* are refused for *open_s*, then one is tried.

    *cause* is the code of the last failure (``http_500``). Without Redis each process has its own breakers.
    """

    name = "gate_breaker_opened"
    level = "warning"
    tenant: str
    provider: str
    account: str
    host: str
    open_s: float
    cause: str = ""


@dataclass(frozen=True, slots=True)
class GateBreakerClosed(Event):
    """The call that was tried did well: calls to *host* come back, 2 in the first second, then twice as many.

    A breaker that somebody closes by hand is told by the audit instead.
    """

    name = "gate_breaker_closed"
    tenant: str
    provider: str
    account: str
    host: str


@dataclass(frozen=True, slots=True)
class GateBypassed(Event):
    """The gate is disabled by hand: since the last look *calls* went past their limits."""

    name = "gate_bypassed"
    level = "warning"
    provider: str
    calls: int


@dataclass(frozen=True, slots=True)
class BulkAdopted(Event):
    """A bulk operation that was found running, begun by nobody known here, was given a place."""

    name = "bulk_adopted"
    tenant: str
    provider: str
    running_id: str


@dataclass(frozen=True, slots=True)
class TenantRapid(Event):
    """A tenant asked *refused* times within a second for what it was refused; it is put off locally."""

    name = "tenant_rapid"
    level = "warning"
    tenant: str
    provider: str
    refused: int


@dataclass(frozen=True, slots=True)
class GateNotPersistent(Event):
    """Redis writes no append-only file: a restart forgets open breakers, waits and lines. See *advice*."""

    name = "gate_not_persistent"
    level = "warning"
    server: str
    advice: str


@dataclass(frozen=True, slots=True)
class GateMaintained(Event):
    """The hourly look after the gate's keys, over the last hour as far as the logs of pools reach.

    *orphans*: leases that ended because nobody gave them back; *promoted*: who went first because he had
    waited too long; *cleaned*: keys without an end of their life that were given one. *keys* and *size_bytes*
    are ours (None: the server does not tell), *used_bytes* is the server's. *complete* False: there are more.
    """

    name = "gate_maintained"
    orphans: int
    promoted: int
    cleaned: int
    keys: int
    size_bytes: int | None
    used_bytes: int
    complete: bool
