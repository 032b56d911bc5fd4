"""What may still be begun in the time that is left (C6, DEFAULTS §2).

A call inside a job ends before the job does, with a buffer in which its handler can note what it has. No wait
is begun whose end, and the attempt after it, would come too late: it is said at once that there is no time.
"""

from __future__ import annotations

import math

NEXT_ATTEMPT_S = 5.0
"""A further attempt is begun only with so much left for it, or a quarter of the whole where that is less."""
ENOUGH_S, LEAST_S = 5.0, 0.5
"""What is a fair trial of a destination in any case, and what is none."""
BUFFER_S, BUFFER_SHARE = 30.0, 0.25
"""Before a job's end: so long, but at most this share of its timeout."""
PAGES_BUFFER_S = 15.0
"""The same for one that collects pages: what it has must be kept, too."""


def buffer_s(timeout_s: float, *, pages: bool = False) -> float:
    """What a job with *timeout_s* keeps free before its end.

    >>> buffer_s(60), buffer_s(600), buffer_s(600, pages=True)
    (15.0, 30.0, 15.0)
    """
    return min(PAGES_BUFFER_S if pages else BUFFER_S, BUFFER_SHARE * timeout_s)


def next_attempt_s(whole_s: float) -> float:
    """What must be left for a further attempt of something that may take *whole_s* in all.

    As the other buffers it is a share of a short time: else a call of 4 s would never be tried again.

    >>> next_attempt_s(60), next_attempt_s(4)
    (5.0, 1.0)
    """
    return min(NEXT_ATTEMPT_S, BUFFER_SHARE * whole_s)


def has_time(left_s: float, wait_s: float, whole_s: float = math.inf) -> bool:
    """Whether a wait of *wait_s* and an attempt after it fit into *left_s*; *whole_s* as above.

    >>> has_time(10, 4), has_time(10, 6), has_time(3, 1, whole_s=4)
    (True, False, True)
    """
    return wait_s + next_attempt_s(whole_s) <= left_s


def is_hurried(given_s: float, whole_s: float) -> bool:
    """Whether an attempt that has *given_s* of its call's *whole_s* has too little for a fair trial.

    Under half of it, since the rest was waited away, unless it is 5 s; or under half a second, as its caller
    wanted it. When that time is up it says nothing of the destination: after an outage, when calls wait for
    their turn, such attempts would open its breaker again.

    >>> is_hurried(2, 60), is_hurried(6, 60), is_hurried(0.9, 1), is_hurried(0.2, 0.2)
    (True, False, False, True)
    """
    return given_s < min(ENOUGH_S, max(LEAST_S, whole_s / 2))
