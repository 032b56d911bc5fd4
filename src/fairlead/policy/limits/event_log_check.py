"""A check of a bucket's event log: was its limit ever exceeded? Spec: G4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.policy.limits.limit import MICRO


@dataclass(frozen=True, slots=True)
class BucketCheck:
    """The result of a check: the calls and units that were spent, and the worst excess over the limit."""

    calls: int
    spent: float
    max_excess: float
    """The largest cost in any window, less capacity + rate · window, in units; 0 if the limit was never exceeded."""
    violation: str
    """The first excess, as a sentence; empty if there is none."""


def verify_bucket_log(spends: Iterable[tuple[int, int]], *, capacity: int, rate: int) -> BucketCheck:
    """Replay the spends of a log against a full bucket, which checks every window at once.

    The units spent in some window exceed *capacity* + *rate* · window exactly if this bucket falls below 0. An entry
    that is older than the one before comes from a clock that was set back, and refills nothing.

    Args:
        spends: For each entry its time in microseconds and its cost in micro-units, in the order of the log.
        capacity: Units.
        rate: Units per second.
    """
    level = full = capacity * MICRO  # millionths of a micro-unit
    last_us: int | None = None
    calls = spent = excess = 0
    violation = ""
    for at_us, cost in spends:
        if last_us is not None and at_us > last_us:
            level = min(full, level + (at_us - last_us) * rate)
        last_us = at_us
        level -= cost * MICRO
        calls, spent = calls + 1, spent + cost
        if level < 0 and not violation:
            violation = f"{-level / MICRO / MICRO:g} units too many at {at_us}"
        excess = max(excess, -level)
    return BucketCheck(calls, spent / MICRO, excess / MICRO / MICRO, violation)
