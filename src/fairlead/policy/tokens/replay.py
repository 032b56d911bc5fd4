"""Decides whether a refresh token may be sent again when the outcome of the first send is unknown.

| policy                | decision                                                                          |
| --------------------- | --------------------------------------------------------------------------------- |
| stable, assertion     | replay at once: no token was spent                                                |
| until_successor_used  | replay when the send before is over, while the old token is remembered (grace_s)  |
| grace(N)              | replay when the send before is over, inside N less a margin; later give up        |
| strict*               | wait until the access token is dead; then one replay if replay_at_expiry; give up |

A send is over when its request can no longer be processed: one request deadline after its SENT mark (R9). A
replay before that could be overtaken: the provider would answer the earlier request with another successor, and
invalidate the stored one. Under strict policies the access token is served meanwhile: a replay after its expiry
loses nothing, but an earlier one may revoke the whole family and with it a valid token.

Spec: R7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fairlead.policy.providers.profile_parts import ReplayPolicy

_LARGEST_MARGIN_S = 15.0
"""The most by which a replay starts before the end of the grace, to arrive inside it. One HTTP deadline (R9)."""


@dataclass(frozen=True, slots=True)
class ReplayNow:
    """Send the same token again now, within *within_s* seconds (None: no limit)."""

    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReplayLater:
    """Decide again in *delay_s* seconds; serve the access token meanwhile."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The rotation is lost: needs_reauth."""

    reason: Literal["lost_rotation"] = "lost_rotation"


def replay_decision(
    policy: ReplayPolicy,
    *,
    grace_s: float | None,
    replay_at_expiry: bool,
    age_since_sent_s: float,
    age_since_last_sent_s: float,
    request_deadline_s: float,
    access_expires_in_s: float | None,
    replays_done: int,
) -> ReplayNow | ReplayLater | GiveUp:
    """Decide what to do with a refresh that was sent and has an unknown outcome.

    Args:
        grace_s: Seconds for which the provider remembers a spent token. None: no limit.
        replay_at_expiry: Whether a strict policy allows one replay after the access token's expiry.
        age_since_sent_s: Seconds since the first SENT mark.
        age_since_last_sent_s: Seconds since the latest SENT mark.
        request_deadline_s: The most seconds that a request may take.
        access_expires_in_s: Seconds until the stored access token expires. None: it never does, so a strict
            policy does not wait for that.
        replays_done: Replays with an unknown outcome so far.
    """
    over_in_s = request_deadline_s - age_since_last_sent_s  # then the latest send can no longer be processed
    if policy in {"stable", "assertion"}:
        return ReplayNow()
    if policy in {"until_successor_used", "grace"}:
        if grace_s is None:
            return ReplayLater(over_in_s) if over_in_s > 0 else ReplayNow()
        remaining_s = replayable_s(grace_s) - age_since_sent_s
        return _inside_grace(remaining_s, min(over_in_s, (remaining_s - age_since_last_sent_s) / 2))
    may_replay = replay_at_expiry and replays_done == 0
    wait_s = max(access_expires_in_s or 0.0, over_in_s if may_replay else 0.0)
    if wait_s > 0:
        return ReplayLater(wait_s)
    return ReplayNow() if may_replay else GiveUp()


def _inside_grace(remaining_s: float, wait_s: float) -> ReplayNow | ReplayLater | GiveUp:
    """Decide on a replay, *remaining_s* seconds before the last moment for it.

    *wait_s* is at most half of the time that remained at the latest send, so that the replay is not too late.
    """
    if remaining_s < 0:
        return GiveUp()
    return ReplayLater(wait_s) if wait_s > 0 else ReplayNow(remaining_s)


def defer_s(policy: ReplayPolicy, grace_s: float | None) -> float | None:
    """Return the seconds after the first send for which a response defers to a later send; None: it never does.

    The provider answers the later send with another successor, and may invalidate the first. While the token
    may still be replayed, the newest successor can be had; after that the stored response is used.
    """
    if policy not in {"until_successor_used", "grace"}:
        return None
    return math.inf if grace_s is None else replayable_s(grace_s)


def replayable_s(grace_s: float) -> float:
    """Return the seconds after the send in which a replay must start to arrive inside *grace_s*."""
    return grace_s - min(_LARGEST_MARGIN_S, grace_s / 10)
