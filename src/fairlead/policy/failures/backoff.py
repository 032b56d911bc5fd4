"""The delay before the next attempt: exponential, capped, with jitter.

    d = min(cap, base · 2^attempt · factor)        attempt 0 is the first retry

Jitter spreads callers that failed together. The random number is an argument, so a test can choose it.
"""

from __future__ import annotations

import math
from enum import StrEnum

_LARGEST_EXPONENT = 1000  # 2.0**1024 overflows; long before it every cap is reached


class Jitter(StrEnum):
    """The ways to spread the delay around the nominal delay d."""

    FULL = "full"
    """uniform(0, d)"""
    EQUAL = "equal"
    """d/2 + uniform(0, d/2)"""
    PROPORTIONAL = "proportional"
    """d ± 25 %; the one jitter that may pass the cap, by at most a quarter of it"""


def nominal_delay_s(attempt: int, *, base_s: float, cap_s: float, factor: float = 1.0) -> float:
    """Return the delay d before jitter, in seconds.

    >>> [nominal_delay_s(n, base_s=5, cap_s=60) for n in range(5)]
    [5.0, 10.0, 20.0, 40.0, 60]

    Args:
        attempt: 0 is the first retry.
        base_s: The first delay.
        cap_s: The longest delay.
        factor: Scales the base (Mercado Libre 1.5). Default 1.

    Raises:
        ValueError: *attempt* is negative, or another argument is negative or not finite.
    """
    if attempt < 0:
        raise ValueError(f"attempt {attempt} is negative hint: attempt 0 is the first retry")
    for name, value in (("base_s", base_s), ("cap_s", cap_s), ("factor", factor)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} {value} is no length of time hint: give a finite number, 0 or more")
    return min(cap_s, base_s * factor * 2.0 ** min(attempt, _LARGEST_EXPONENT))


def jittered_s(delay_s: float, jitter: Jitter, draw: float) -> float:
    """Return *delay_s* spread by *jitter*; *draw* is a random number in [0, 1).

    >>> [jittered_s(8, jitter, 0.5) for jitter in Jitter]
    [4.0, 6.0, 8.0]
    """
    checked_draw(draw)
    if jitter is Jitter.FULL:
        return delay_s * draw
    if jitter is Jitter.EQUAL:
        return delay_s * (0.5 + 0.5 * draw)
    return delay_s * (0.75 + 0.5 * draw)


def backoff_s(
    attempt: int, *, base_s: float, cap_s: float, jitter: Jitter, draw: float, factor: float = 1.0
) -> float:
    """Return the delay before retry number *attempt* (0 is the first), in seconds, with jitter."""
    return jittered_s(nominal_delay_s(attempt, base_s=base_s, cap_s=cap_s, factor=factor), jitter, draw)


def checked_draw(draw: float) -> float:
    """Return *draw*. Raise ValueError if it is not in [0, 1)."""
    if not 0 <= draw < 1:
        raise ValueError(f"draw {draw} is not in [0, 1) hint: hand in what random.random() gives")
    return draw
