"""Decides whether a refresh may start now. Pure: the coordinator acts on the plan.

The order of the checks is the design: what is already done, what must not be done, what another process is
doing, and only then a start. Spec: T4, T5, T6, R5, R7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class InFlight:
    """The refresh of a connection that has a row in the store, whether its process lives or not."""

    phase: Literal["intent", "sent", "unknown"]
    was_sent: bool  # this generation's token was sent, by this attempt or an earlier one
    is_owner_alive: bool  # its process is not known to be lost, and its lease has not expired
    is_ours: bool  # this process owns it


@dataclass(frozen=True, slots=True)
class CredentialSnapshot:
    """Facts about a credential, read in one statement."""

    state: Literal["active", "unknown", "needs_reauth", "revoked"]
    generation: int
    refreshable: bool
    expires_in_s: float | None
    refreshed_age_s: float | None  # since the last refresh
    in_flight: InFlight | None


@dataclass(frozen=True, slots=True)
class Serve:
    """Return the stored token, because it is newer than the caller's; send nothing."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the refresh of another process that is alive."""


@dataclass(frozen=True, slots=True)
class CoolDown:
    """Refuse for *retry_after_s* seconds, because the credential was just refreshed."""

    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse, because no refresh helps: a new grant is needed, or for *unknown* the access token must expire first."""

    why: Literal["needs_reauth", "revoked", "no_refresh_token", "unknown"]


@dataclass(frozen=True, slots=True)
class Start:
    """No request of this generation was sent: claim the intent and send."""


@dataclass(frozen=True, slots=True)
class Recover:
    """It was sent, and its owner is gone: settle its journal entry or mark it unknown. Never send."""


@dataclass(frozen=True, slots=True)
class ResolveUnknown:
    """The outcome of a send is unknown: the replay policy decides (policy/tokens/replay.py)."""


Plan = Serve | Wait | CoolDown | Refuse | Start | Recover | ResolveUnknown


def plan_refresh(
    snapshot: CredentialSnapshot, newer_than: int | None, *, cooldown_s: float, min_remaining_s: float
) -> Plan:
    """Return what to do for a caller that holds generation *newer_than* (None: it presented no token).

    Only generations decide whether a newer token is stored, and an expired one is never served. A token that
    is valid for more than *min_remaining_s* serves only callers that presented none. The cooldown never
    returns the generation that was presented. Spec: R5.
    """
    if snapshot.state == "revoked":
        return Refuse("revoked")
    if newer_than is not None and snapshot.generation > newer_than and _outlasts(snapshot.expires_in_s, 0):
        return Serve()
    if newer_than is None and _outlasts(snapshot.expires_in_s, min_remaining_s):
        return Serve()
    if snapshot.state == "needs_reauth":
        return Refuse("needs_reauth")
    if not snapshot.refreshable:
        return Refuse("no_refresh_token")
    if snapshot.state == "unknown" and not snapshot.in_flight and _outlasts(snapshot.expires_in_s, 0):
        # It was imported as unknown: the time of its send is not known, so it must wait for the expiry.
        return Refuse("unknown")
    return _plan_in_flight(snapshot.in_flight) or _plan_cooldown(snapshot, newer_than, cooldown_s) or Start()


def _outlasts(expires_in_s: float | None, duration_s: float) -> bool:
    """Return whether a token is still valid in *duration_s* seconds; None never expires."""
    return expires_in_s is None or expires_in_s > duration_s


def _plan_in_flight(in_flight: InFlight | None) -> Plan | None:
    """Return what a refresh in flight requires; None if a new one may start in its place."""
    if in_flight is None:
        return None
    if in_flight.phase == "unknown":
        return ResolveUnknown()
    if in_flight.is_owner_alive and not in_flight.is_ours:
        return Wait()
    if in_flight.phase == "sent":
        return Recover()
    return ResolveUnknown() if in_flight.was_sent else None  # an intent that was never sent may be taken over


def _plan_cooldown(snapshot: CredentialSnapshot, newer_than: int | None, cooldown_s: float) -> Plan | None:
    """Return what to do if the last refresh is more recent than *cooldown_s*, else None."""
    age_s = snapshot.refreshed_age_s
    # A time in the future counts as now; one further ahead than the cool-down comes from another clock.
    if age_s is None or not -cooldown_s < age_s < cooldown_s:
        return None
    if newer_than is None and _outlasts(snapshot.expires_in_s, 0):
        return Serve()
    return CoolDown(cooldown_s - max(0.0, age_s))
