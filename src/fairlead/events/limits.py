"""Events of the gate: degraded mode, breakers, overrides, maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class GateDegraded(Event):
    """This process limits calls to its share of each limit: Redis is unavailable, or an operator chose so."""

    name = "gate_degraded"
    level = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class GateRestored(Event):
    """Limits are shared with the fleet again, after *outage_s* seconds."""

    name = "gate_restored"
    outage_s: float


@dataclass(frozen=True, slots=True)
class GateSlow(Event):
    """Redis took *took_s* seconds to respond; above 0.8 s this process uses only its share of each limit."""

    name = "gate_slow"
    level = "warning"
    took_s: float


@dataclass(frozen=True, slots=True)
class GateWouldRefuse(Event):
    """A call of a connection in observe mode was sent although its limits would have refused it."""

    name = "gate_would_refuse"
    tenant: str
    provider: str
    reason: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class GateBreakerOpened(Event):
    """A destination fails: calls of this connection to *host* are refused for *open_s* seconds, then one probes it.

    Without Redis each process has its own breakers.

    Attributes:
        cause: The code of the last failure, such as ``http_500``.
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
    """The probe succeeded: calls to *host* resume with 2 in the first second, doubling each second.

    A breaker that an operator closes is recorded in the audit trail instead.
    """

    name = "gate_breaker_closed"
    tenant: str
    provider: str
    account: str
    host: str


@dataclass(frozen=True, slots=True)
class GateBypassed(Event):
    """The gate is disabled by an override: *calls* skipped their limits since the previous event."""

    name = "gate_bypassed"
    level = "warning"
    provider: str
    calls: int


@dataclass(frozen=True, slots=True)
class BulkAdopted(Event):
    """A bulk operation that was found running, and that fairlead had not started, was given a slot."""

    name = "bulk_adopted"
    tenant: str
    provider: str
    running_id: str


@dataclass(frozen=True, slots=True)
class TenantThrottled(Event):
    """A tenant repeated refused calls *refused* times within a second; further ones are refused locally."""

    name = "tenant_throttled"
    level = "warning"
    tenant: str
    provider: str
    refused: int


@dataclass(frozen=True, slots=True)
class GateNotPersistent(Event):
    """Redis writes no append-only file, so a restart loses open breakers, waits and queues. See *advice*."""

    name = "gate_not_persistent"
    level = "warning"
    server: str
    advice: str


@dataclass(frozen=True, slots=True)
class GateMaintenanceDone(Event):
    """The hourly maintenance of the gate's keys ended.

    Attributes:
        orphans: Leases of the last hour that expired or were recovered instead of released.
        promoted: Callers of the last hour that were served first because they had waited too long.
        cleaned: Keys without a time to live that were given one.
        keys: Keys of this installation.
        size_bytes: Their size; None if the server does not report it.
        used_bytes: Memory that the server uses.
        complete: False if there are more keys than were read.
    """

    name = "gate_maintenance_done"
    orphans: int
    promoted: int
    cleaned: int
    keys: int
    size_bytes: int | None
    used_bytes: int
    complete: bool
