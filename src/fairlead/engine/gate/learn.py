"""What a provider's answer changes in the buckets of the call it answers (G3).

What is told of a limit goes to the bucket of that name; how many calls may be in flight, to the pool. A
refusal for a limit that no bucket stands for slows all buckets of the call: something that is not known here
is spent. Refusals for want of a slot, for one endpoint, kind of operation or object are not the buckets'
affair, unless a bucket bears the name.

What an answer says is bounded by what is known (R52): numbers that no bucket can have are ignored, and a
limit that is ten times as large or small as the known one counts once two answers in a row tell it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fairlead.engine.ports.gate import Observation
from fairlead.events import Event
from fairlead.policy.feedback.reply import ACCOUNT, BULK, CONCURRENCY, ENDPOINT, OBJECT, SEARCH, Heard
from fairlead.policy.gate.limit import MAX_SLOTS, BucketLimit, Plan, is_bucket
from fairlead.policy.hint import HINT_CAP_S, clamp_hint

FAR = 10.0
"""A learnt limit that differs by more than this factor needs a second answer."""
_OF_SOME_CALLS = frozenset({CONCURRENCY, ACCOUNT, BULK, SEARCH, ENDPOINT, OBJECT})


@dataclass(frozen=True, slots=True)
class LimitIgnored(Event):
    """An answer told numbers of a limit that are not believed.

    No limit can have them, or they are far from the known ones and were told once. *total*: such answers to
    this connection in this process; told of the 1st, 2nd, 4th, 8th, ...
    """

    name = "limit_ignored"
    level = "warning"
    tenant: str
    provider: str
    limit: str
    total: int


@dataclass(frozen=True, slots=True)
class Learnt:
    """For each bucket of a plan, by its place: what to observe, and what the call cost."""

    observed: Mapping[int, Observation]
    actual: Mapping[int, float]
    asked: Mapping[int, float]
    """What the provider took for the call before it ran it, or else what it cost."""
    slots: int | None = None
    """Calls that may be in flight."""
    ignored: tuple[str, ...] = ()
    """Limits whose numbers were not believed, by name."""


@dataclass(slots=True)
class Doubts:
    """What answers told last that was not believed yet, by bucket; one per plan, in this process."""

    told: dict[int, tuple[float, float]] = field(default_factory=dict)
    slots: float | None = None

    def believes(self, index: int, told: tuple[float, float], known: tuple[float, float]) -> bool:
        """Return whether (capacity, per_s) as *told* counts: it is near the *known* one, or told twice."""
        if _is_near(told, known):
            self.told.pop(index, None)
            return True
        before = self.told.get(index)
        self.told[index] = told
        return before is not None and _is_near(told, before)

    def slots_of(self, told: float, known: int | None) -> int | None:
        """Return the number of slots that *told* is; None where it does not count, as `believes` has it."""
        before, self.slots = self.slots, told
        is_near = any(_is_near((told,), (one,)) for one in (known or told, before) if one is not None)
        return int(told) if is_near and told <= MAX_SLOTS else None


def learnt(plan: Plan, heard: Iterable[Heard], doubts: Doubts | None = None) -> Learnt:
    """What *heard* says about the buckets of *plan*, with the *doubts* that earlier answers left."""
    doubts = Doubts() if doubts is None else doubts
    ignored: list[str] = []
    observed: dict[int, Observation] = {}
    actual: dict[int, float] = {}
    asked: dict[int, float] = {}
    slots: int | None = None
    unknown_s: float | None = None
    places = {bucket.name: index for index, bucket in enumerate(plan.buckets) if bucket.name}
    for item in heard:
        index = places.get(item.limit)
        if index is not None:
            bucket = plan.buckets[index]
            observed[index] = seen = _observation(item, bucket, doubts, index)
            most = seen.capacity or bucket.capacity  # no call costs more than the bucket holds
            if item.actual is not None or item.refused:
                actual[index] = min(item.actual or 0.0, most)  # what was refused was not run
            if (cost := item.requested or item.actual) is not None:
                asked[index] = min(cost, most)
            ignored += [item.limit] * _is_odd(item, seen, most)
        elif item.limit == CONCURRENCY and item.capacity is not None:
            slots = doubts.slots_of(item.capacity, None if plan.pool is None else plan.pool.capacity)
            ignored += [item.limit] * (slots is None)
        elif item.refused and item.limit not in _OF_SOME_CALLS:
            unknown_s = max(unknown_s or 0.0, _wait_s(item) or 0.0)
    if unknown_s is not None:
        for other in range(len(plan.buckets)):
            known = observed.get(other)
            observed[other] = (
                Observation(wait_s=unknown_s) if known is None else replace(known, held_s=unknown_s)
            )
    return Learnt(observed, actual, asked, slots or None, tuple(ignored))


def _is_near(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= FAR * b and b <= FAR * a for a, b in zip(one, other, strict=True))


def _is_odd(item: Heard, seen: Observation, most: float) -> bool:
    """Return whether numbers of *item* were not believed: of the limit, or a cost above *most*."""
    told = item.capacity is not None or item.per_s is not None
    lost = told and seen.capacity is None and seen.per_s is None
    return lost or max(item.actual or 0.0, item.requested or 0.0) > most


def _observation(item: Heard, bucket: BucketLimit, doubts: Doubts, index: int) -> Observation:
    capacity, per_s = item.capacity, item.per_s
    if item.window_s and capacity is not None and capacity > 1:
        burst = max(1.0, capacity / 10)  # as per_window has it, which raises where no bucket comes of it
        capacity, per_s = burst, (capacity - burst) / item.window_s
    elif item.window_s:
        capacity = None
    if capacity is not None or per_s is not None:
        told = (capacity or bucket.capacity, per_s or bucket.per_s)
        if not is_bucket(*told) or not doubts.believes(index, told, (bucket.capacity, bucket.per_s)):
            capacity = per_s = None
    wait_s = _wait_s(item)
    unit_s = 1 / (per_s or bucket.per_s)
    if wait_s is None and item.left == 0 and item.reset_s is not None and item.reset_s < unit_s:
        reset_s = clamp_hint(item.reset_s, daily_limit=item.daily)  # all of it comes back at once, and sooner
        return Observation(capacity or bucket.capacity, capacity, per_s, held_s=reset_s)
    return Observation(item.left, capacity, per_s, wait_s)


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
