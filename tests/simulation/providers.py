"""The vendors of the simulated world: one for each way to meet a refresh token that was presented before."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.policy.providers.profile import Profile
from fairlead.testing.issuer.families import Policy, ReplayRules

ACCESS_TTL_S = 100.0
GRACE_S = 90.0


class Room(NamedTuple):
    """What one account may do: calls in flight, calls at once, calls each second."""

    slots: int | None
    burst: float
    per_s: float


LITTLE, MUCH = Room(4, 10.0, 5.0), Room(None, 20.0, 10.0)
"""Where no slots are counted, rates and budgets alone hold calls back."""

RULES: dict[str, ReplayRules] = {
    "strict": ReplayRules(Policy.STRICT),
    "family": ReplayRules(Policy.STRICT_FAMILY_REVOKE),
    "grace": ReplayRules(Policy.GRACE, GRACE_S),
    "successor": ReplayRules(Policy.UNTIL_SUCCESSOR_USED),
    "stable": ReplayRules(Policy.STABLE),
}
"""What each does with its tokens, by its name."""


ROOMS: dict[str, Room] = {name: MUCH if name == "stable" else LITTLE for name in RULES}


def profile(name: str) -> Profile:
    """How fairlead knows the vendor."""
    rules, room = RULES[name], ROOMS[name]
    replay: dict[str, object] = {"policy": rules.policy.value}
    if rules.policy is Policy.GRACE:
        replay["grace_s"] = rules.grace_s
    return Profile.model_validate(
        {
            "name": name,
            "title": name,
            "strategy": "refresh_token",
            "endpoints": {"token": f"https://issuer.sim/{name}/token"},
            "ttl_default_s": ACCESS_TTL_S,
            "windows": {"lead_s": 50.0, "buffer_s": 20.0, "critical_s": 8.0},
            "replay": replay,
            "rate": {"limit": 600, "window_s": 60.0},
            "account": {"field": "account_id"},
            "apis": {"rest": {"url": "https://api.sim"}},
            "limits": {
                "domain": "account",
                "calls": {"requests": {"capacity": room.burst, "per_s": room.per_s}},
                **({} if room.slots is None else {"slots": room.slots}),
            },
        }
    )


PROFILES: dict[str, Profile] = {name: profile(name) for name in RULES}
