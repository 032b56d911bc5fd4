"""May a refresh token be sent a second time after an outcome nobody knows? (reference/tokens.md §3.2, R7)

| policy                | answer                                                                            |
| --------------------- | --------------------------------------------------------------------------------- |
| stable, assertion     | replay at once: nothing was spent                                                 |
| until_successor_used  | replay when the send before is over, while the old token is remembered (grace_s)  |
| grace(N)              | replay when the send before is over, inside N less a margin; later give up        |
| strict*               | wait until the access token is dead; then one replay if replay_at_expiry; give up |

A send is over when its request can no longer be processed: one request deadline after its SENT mark (R9). A
replay that is answered before would be overtaken: the provider then answers the earlier request with another
successor, and forgets the one we hold.
Under strict policies the access token is served meanwhile. A replay once it is dead costs nothing that is
still held; before, it may revoke the family and with it a token that works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fairlead.policy.providers.profile_parts import ReplayPolicy

_LARGEST_MARGIN_S = 15.0
"""A replay may be under way for one HTTP deadline (R9), and must arrive inside the grace."""


@dataclass(frozen=True, slots=True)
class ReplayNow:
    """Send the same token again now; it has to leave in *within_s* (None: whenever it can)."""

    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again in *delay_s*; serve the access token meanwhile."""

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
) -> ReplayNow | Wait | GiveUp:
    """What to do with a rotation in phase unknown.

    *age_since_sent_s* runs from the first SENT mark, *age_since_last_sent_s* from the latest,
    *access_expires_in_s* to the end of the stored access token (zero or less: dead; None: it never expires);
    *request_deadline_s* is how long a request may be under way, *replays_done* counts replays whose outcome
    is unknown too.
    """
    over_in_s = request_deadline_s - age_since_last_sent_s
    if policy in {"stable", "assertion"}:
        return ReplayNow()
    if policy in {"until_successor_used", "grace"}:
        if grace_s is None:
            return Wait(over_in_s) if over_in_s > 0 else ReplayNow()
        left_s = replayable_s(grace_s) - age_since_sent_s
        return _inside_grace(left_s, min(over_in_s, (left_s - age_since_last_sent_s) / 2))
    may_replay = replay_at_expiry and replays_done == 0
    wait_s = max(access_expires_in_s or 0.0, over_in_s if may_replay else 0.0)
    if wait_s > 0:
        return Wait(wait_s)
    return ReplayNow() if may_replay else GiveUp()


def _inside_grace(left_s: float, wait_s: float) -> ReplayNow | Wait | GiveUp:
    """*wait_s* is at most half of what was left of the grace at the latest send, or it would be missed."""
    if left_s < 0:
        return GiveUp()
    return Wait(wait_s) if wait_s > 0 else ReplayNow(left_s)


def defer_s(policy: ReplayPolicy, grace_s: float | None) -> float | None:
    """For how long after the first send an answer gives way where the token was sent again since.

    The provider answers such a token with another successor, and the one before may be good for nothing then.
    While it may be sent once more the newest is to be had; later what we have must do. None: never, as no
    send makes another's answer worthless.
    """
    if policy not in {"until_successor_used", "grace"}:
        return None
    return math.inf if grace_s is None else replayable_s(grace_s)


def replayable_s(grace_s: float) -> float:
    """How long after the send a replay may leave so that it arrives inside *grace_s*."""
    return grace_s - min(_LARGEST_MARGIN_S, grace_s / 10)
