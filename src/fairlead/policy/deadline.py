"""What may still be begun in the time that is left (C6, DEFAULTS §2).

A call inside a job ends before the job does, with a buffer in which its handler can note what it has. No wait
is begun whose end, and the attempt after it, would come too late: it is said at once that there is no time.
"""

from __future__ import annotations

NEXT_ATTEMPT_S = 5.0
"""A further attempt is begun only with so much left for it."""
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


def has_time(left_s: float, wait_s: float) -> bool:
    """Whether a wait of *wait_s* and an attempt after it fit into *left_s*.

    >>> has_time(10, 4), has_time(10, 6)
    (True, False)
    """
    return wait_s + NEXT_ATTEMPT_S <= left_s
