"""When a token's refresh is due, urgent and critical (T2, DEFAULTS §1), as offsets from the send.

    send                     due        urgent         critical      expiry
     |------------------------|-----------|---------------|------------|
                              |<-jitter ->|<------------- lead ------->|

Jitter only makes a refresh earlier and is stable per connection, so that 10,000 connections made in one
minute never refresh in one minute. Floors of minutes yield to TTL/2: a token of eight seconds has windows
of seconds, in the right order, and not a refresh that is due before it was sent.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_parts import RefreshWindowsConfig

_LONGEST_LEAD_S = 30 * 60.0
_SHORTEST_LEAD_S = 5 * 60.0
_SHORTEST_CRITICAL_S = 60.0
_JITTER_SHARE = 1 / 30
"""The largest jitter, as a share of the token's lifetime."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The instants of a token's refresh, in seconds after the send; *buffer_s* and *lead_s* count back from expiry.

    From *buffer_s* before expiry on, a read of the token starts a refresh itself. Always
    0 < due_in_s <= urgent_in_s <= critical_in_s < expires_in_s.
    """

    expires_in_s: float
    due_in_s: float
    urgent_in_s: float
    critical_in_s: float
    buffer_s: float
    lead_s: float


def windows(profile: Profile, expires_in_s: float, jitter: float) -> Windows:
    """Return the windows of a token with a lifetime of *expires_in_s*.

    Args:
        jitter: A number in [0, 1), from `jitter_fraction`.

    Raises:
        ValueError: The lifetime is not a positive finite number: a token that never expires has no windows.
    """
    if not (math.isfinite(expires_in_s) and expires_in_s > 0):
        raise ValueError(f"expires_in_s {expires_in_s} is no life hint: only tokens that expire have windows")
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter {jitter} is not in [0, 1) hint: use jitter_fraction")
    lead_s, buffer_s, critical_s = _lengths(profile.windows, expires_in_s)
    urgent_in_s = expires_in_s - lead_s
    return Windows(
        expires_in_s=expires_in_s,
        due_in_s=urgent_in_s - jitter * expires_in_s * _JITTER_SHARE,
        urgent_in_s=urgent_in_s,
        critical_in_s=expires_in_s - critical_s,
        buffer_s=buffer_s,
        lead_s=lead_s,
    )


def _lengths(settings: RefreshWindowsConfig, ttl_s: float) -> tuple[float, float, float]:
    """Return lead, buffer and critical as seconds before expiry.

    If half the lifetime limits the lead, configured buffers and critical lengths shrink in proportion.
    """
    full_lead_s = settings.lead_s or min(_LONGEST_LEAD_S, max(_SHORTEST_LEAD_S, ttl_s / 6))
    lead_s = min(full_lead_s, ttl_s / 2)
    shrunk_by = lead_s / full_lead_s
    buffer_s = settings.buffer_s * shrunk_by if settings.buffer_s else lead_s / 3
    critical_s = (
        settings.critical_s * shrunk_by
        if settings.critical_s
        else min(max(lead_s / 6, _SHORTEST_CRITICAL_S), lead_s / 3, buffer_s)
    )
    critical_s = min(critical_s, lead_s)
    return lead_s, min(max(buffer_s, critical_s), lead_s), critical_s


def buffer_s(settings: RefreshWindowsConfig, lead_s: float) -> float:
    """Return how long before expiry a read starts a refresh, for a token with the lead *lead_s*."""
    if settings.buffer_s and settings.lead_s:
        return settings.buffer_s * min(1.0, lead_s / settings.lead_s)
    return settings.buffer_s or lead_s / 3


def jitter_fraction(connection_id: str) -> float:
    """Return a number in [0, 1) that is constant for a connection and uniform over many."""
    digest = hashlib.blake2b(connection_id.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53
