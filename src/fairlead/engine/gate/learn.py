"""What a provider's answer changes in the buckets of the call it answers (G3).

What is told of a limit goes to the bucket of that name; how many calls may be in flight, to the pool. A
refusal for a limit that no bucket stands for slows all buckets of the call: something that is not known here
is spent. Refusals for want of a slot, for one endpoint, kind of operation or object are not the buckets'
affair, unless a bucket bears the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fairlead.engine.ports.gate import Observation
from fairlead.policy.feedback.reply import ACCOUNT, BULK, CONCURRENCY, ENDPOINT, OBJECT, SEARCH, Heard
from fairlead.policy.gate.limit import MAX_SLOTS, BucketLimit, Plan, per_window
from fairlead.policy.hint import HINT_CAP_S, clamp_hint

_OF_SOME_CALLS = frozenset({CONCURRENCY, ACCOUNT, BULK, SEARCH, ENDPOINT, OBJECT})


@dataclass(frozen=True, slots=True)
class Learnt:
    """For each bucket of a plan, by its place: what to observe, and what the call cost."""

    observed: Mapping[int, Observation]
    actual: Mapping[int, float]
    asked: Mapping[int, float]
    """What the provider took for the call before it ran it, or else what it cost."""
    slots: int | None = None
    """Calls that may be in flight."""


def learnt(plan: Plan, heard: Iterable[Heard]) -> Learnt:
    """What *heard* says about the buckets of *plan*."""
    observed: dict[int, Observation] = {}
    actual: dict[int, float] = {}
    asked: dict[int, float] = {}
    slots: int | None = None
    unknown_s: float | None = None
    places = {bucket.name: index for index, bucket in enumerate(plan.buckets) if bucket.name}
    for item in heard:
        index = places.get(item.limit)
        if index is not None:
            observed[index] = _observation(item, plan.buckets[index])
            if item.actual is not None or item.refused:
                actual[index] = item.actual or 0.0  # what was refused was not run
            if (cost := item.requested or item.actual) is not None:
                asked[index] = cost
        elif item.limit == CONCURRENCY and item.capacity is not None and item.capacity <= MAX_SLOTS:
            slots = int(item.capacity)
        elif item.refused and item.limit not in _OF_SOME_CALLS:
            unknown_s = max(unknown_s or 0.0, _wait_s(item) or 0.0)
    if unknown_s is not None:
        for other in range(len(plan.buckets)):
            known = observed.get(other)
            observed[other] = (
                Observation(wait_s=unknown_s) if known is None else replace(known, held_s=unknown_s)
            )
    return Learnt(observed, actual, asked, slots or None)


def _observation(item: Heard, bucket: BucketLimit) -> Observation:
    capacity, per_s = item.capacity, item.per_s
    if item.window_s and capacity is not None and capacity > 1:
        window = per_window(bucket.key, capacity, item.window_s)
        capacity, per_s = window.capacity, window.per_s
    elif item.window_s:
        capacity = None
    return Observation(item.left, capacity, per_s, _wait_s(item))


def _wait_s(item: Heard) -> float | None:
    """How long nothing may be sent.

    None where the answer told what is left: then the bucket knows by itself when it has enough again, to the
    millisecond, and need not be emptied. A day's limit without a time of its reset is tried again after a
    while, since nobody knows when the vendor's day ends.
    """
    if item.wait_s is None or (item.left is not None and item.requested is not None):
        return None
    asked_s = item.wait_s or (HINT_CAP_S if item.daily else 0.0)
    return clamp_hint(asked_s, daily_limit=item.daily)
