"""May this refresh start now? The decision of the coordinator, without its hands (T4-T6, R5, R7).

Read from top to bottom it is the order of the double-check: what is already done, what must not be
done, what somebody else is doing, and only then a start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class InFlight:
    """The rotation row of a connection, as the plan needs it."""

    phase: Literal["intent", "sent", "unknown"]
    sent_before: bool  # a send of this generation has left, now or in an earlier try
    owner_live: bool  # its process is not known to be lost and its lease has not run out
    ours: bool  # it is this process's own


@dataclass(frozen=True, slots=True)
class CredentialSnapshot:
    """Facts about a credential, read in one statement."""

    state: Literal["active", "unknown", "needs_reauth", "revoked"]
    generation: int
    refreshable: bool
    expires_in_s: float | None
    refreshed_age_s: float | None
    in_flight: InFlight | None


@dataclass(frozen=True, slots=True)
class Serve:
    """A token newer than the one presented is there; nothing is sent."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A live owner is at it."""


@dataclass(frozen=True, slots=True)
class CoolDown:
    """Refreshed too recently."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Only the customer can help, or nobody; or, for unknown, time."""

    why: Literal["needs_reauth", "revoked", "no_refresh_token", "unknown"]


@dataclass(frozen=True, slots=True)
class Start:
    """Nothing of this generation has left: claim the intent and send."""


@dataclass(frozen=True, slots=True)
class Recover:
    """It was sent, and the owner is gone: settle its journal entry or judge it unknown. Never send."""


@dataclass(frozen=True, slots=True)
class ResolveUnknown:
    """The outcome of a send is unknown: the replay policy decides (policy/tokens/replay.py)."""


Plan = Serve | Wait | CoolDown | Refuse | Start | Recover | ResolveUnknown


def plan_refresh(
    standing: CredentialSnapshot, newer_than: int | None, *, cooldown_s: float, min_remaining_s: float
) -> Plan:
    """What to do for a caller that holds generation *newer_than* (None: it presented no token).

    Generations alone tell whether a newer token is there (R5), and one that has died meanwhile serves
    nobody. "Valid for more than *min_remaining_s*" serves only callers that presented none; the cooldown
    never hands back the generation presented.
    """
    if standing.state == "revoked":
        return Refuse("revoked")
    if newer_than is not None and standing.generation > newer_than and _outlasts(standing.expires_in_s, 0):
        return Serve()
    if newer_than is None and _outlasts(standing.expires_in_s, min_remaining_s):
        return Serve()
    if standing.state == "needs_reauth":
        return Refuse("needs_reauth")
    if not standing.refreshable:
        return Refuse("no_refresh_token")
    if standing.state == "unknown" and not standing.in_flight and _outlasts(standing.expires_in_s, 0):
        return Refuse(
            "unknown"
        )  # imported so: when it was sent is not known, so it may be sent only when all else ends
    return _plan_in_flight(standing.in_flight) or _plan_cooldown(standing, newer_than, cooldown_s) or Start()


def _outlasts(expires_in_s: float | None, s: float) -> bool:
    return expires_in_s is None or expires_in_s > s


def _plan_in_flight(flight: InFlight | None) -> Plan | None:
    if flight is None:
        return None
    if flight.phase == "unknown":
        return ResolveUnknown()
    if flight.owner_live and not flight.ours:
        return Wait()
    if flight.phase == "sent":
        return Recover()
    return ResolveUnknown() if flight.sent_before else None  # an intent that never left may be taken over


def _plan_cooldown(standing: CredentialSnapshot, newer_than: int | None, cooldown_s: float) -> Plan | None:
    age_s = standing.refreshed_age_s
    # A time that lies ahead counts as now; one farther ahead than the cool-down is of another clock.
    if age_s is None or not -cooldown_s < age_s < cooldown_s:
        return None
    if newer_than is None and _outlasts(standing.expires_in_s, 0):
        return Serve()
    return CoolDown(cooldown_s - max(0.0, age_s))
