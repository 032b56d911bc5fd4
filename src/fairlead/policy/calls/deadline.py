"""What can still be started in the remaining time.

A call inside a job ends before the job does, so that its handler can save what it has. A wait is not started if
it, and the attempt after it, could not end in time: the call fails at once. Spec: C6, DEFAULTS §2.
"""

from __future__ import annotations

import math

NEXT_ATTEMPT_S = 5.0
"""The time that a further attempt needs, or a quarter of the whole deadline if that is less."""
ENOUGH_S, LEAST_S = 5.0, 0.5
"""The time that is always, and never, enough to judge a destination by."""
BUFFER_S, BUFFER_SHARE = 30.0, 0.25
"""The time kept free before a job's end, and its largest share of the timeout."""
PAGES_BUFFER_S = 15.0
"""The same for a job that collects pages."""


def buffer_s(timeout_s: float, *, pages: bool = False) -> float:
    """Return the time that a job with *timeout_s* keeps free before its end.

    >>> buffer_s(60), buffer_s(600), buffer_s(600, pages=True)
    (15.0, 30.0, 15.0)
    """
    return min(PAGES_BUFFER_S if pages else BUFFER_S, BUFFER_SHARE * timeout_s)


def next_attempt_s(total_s: float) -> float:
    """Return the time that a further attempt needs, of a call with *total_s* in all.

    It is a share of a short deadline, so that a call of 4 s can be retried, too.

    >>> next_attempt_s(60), next_attempt_s(4)
    (5.0, 1.0)
    """
    return min(NEXT_ATTEMPT_S, BUFFER_SHARE * total_s)


def has_time(left_s: float, wait_s: float, total_s: float = math.inf) -> bool:
    """Return whether a wait of *wait_s* and an attempt after it fit into *left_s*.

    >>> has_time(10, 4), has_time(10, 6), has_time(3, 1, total_s=4)
    (True, False, True)
    """
    return wait_s + next_attempt_s(total_s) <= left_s


def is_hurried(attempt_s: float, total_s: float) -> bool:
    """Return whether an attempt with *attempt_s* of its call's *total_s* has too little time to judge by.

    That is less than half of the total, unless it is 5 s, or less than half a second. A timeout then says nothing
    about the destination: after an outage, when calls have waited long, it would open the breaker again.

    >>> is_hurried(2, 60), is_hurried(6, 60), is_hurried(0.9, 1), is_hurried(0.2, 0.2)
    (True, False, False, True)
    """
    return attempt_s < min(ENOUGH_S, max(LEAST_S, total_s / 2))
