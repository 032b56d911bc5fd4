"""The proof from a bucket's log that it was never over the limit. Spec: G4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.policy.limits.limit import MICRO


@dataclass(frozen=True, slots=True)
class BucketCheck:
    """What was spent of a bucket, in units, and by how much any window held more than it may."""

    calls: int
    spent: float
    most_over: float
    """Return the largest cost in a window, less capacity + rate · window; 0 where none was over."""
    violation: str


def verify_bucket_log(spends: Iterable[tuple[int, int]], *, capacity: int, rate: int) -> BucketCheck:
    """Replay (time in us, cost in micro-units) against a full bucket: all windows are judged at once.

    A sum passes *capacity* + *rate* · window somewhere exactly where this bucket goes below 0. A time that
    goes back is a clock that was set: nothing comes back for it.
    """
    level = full = capacity * MICRO
    last_us: int | None = None
    calls = spent = over = 0
    violation = ""
    for at_us, cost in spends:
        if last_us is not None and at_us > last_us:
            level = min(full, level + (at_us - last_us) * rate)
        last_us = at_us
        level -= cost * MICRO
        calls, spent = calls + 1, spent + cost
        if level < 0 and not violation:
            violation = f"{-level / MICRO / MICRO:g} units too many at {at_us}"
        over = max(over, -level)
    return BucketCheck(calls, spent / MICRO, over / MICRO / MICRO, violation)
