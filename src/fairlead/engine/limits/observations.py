"""The observations that a provider's response adds to the limits of its call.

An observation of a limit goes to the bucket of that name, and one of concurrency to the pool. A refusal for
a limit without a bucket slows all buckets of the call, because some unknown limit is used up. A refusal for
want of a slot, or for one endpoint, kind of operation or object changes no bucket, unless a bucket has that
name.

Responses are bounded by what is known. Numbers that no bucket can have are ignored. A limit that is ten times
as large or as small as the known one counts once two responses in a row state it. A limit that several
tenants share counts once responses to two of them state it. Spec: G3, R50, R52.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fairlead.engine.ports import Observation
from fairlead.events import Event
from fairlead.policy.failures.hint import HINT_CAP_S, clamp_hint
from fairlead.policy.limits.feedback.raw_response import (
    ACCOUNT,
    BULK,
    CONCURRENCY,
    ENDPOINT,
    OBJECT,
    SEARCH,
    LimitObservation,
)
from fairlead.policy.limits.limit import MAX_SLOTS, BucketLimit, Plan, is_bucket

FAR = 10.0
"""A stated limit that differs by more than this factor counts once a second response states it."""
_OF_SOME_CALLS = frozenset({CONCURRENCY, ACCOUNT, BULK, SEARCH, ENDPOINT, OBJECT})


@dataclass(frozen=True, slots=True)
class LimitIgnored(Event):
    """Numbers of a limit in a response were ignored.

    They are impossible, or far from the known ones and stated only once. The event is emitted for the 1st,
    2nd, 4th, 8th, ... such response to a connection in this process; *total* counts them.
    """

    name = "limit_ignored"
    level = "warning"
    tenant: str
    provider: str
    limit: str
    total: int


@dataclass(frozen=True, slots=True)
class Observations:
    """What a response says about the buckets of a plan, by their index.

    Attributes:
        observed: The state of the bucket.
        actual: Units that the call used.
        estimated: Units that the provider took for the call before it ran it, or else that it used.
        slots: How many calls may be in flight.
        ignored: The names of limits that were ignored because their numbers are impossible or in doubt.
    """

    observed: Mapping[int, Observation]
    actual: Mapping[int, float]
    estimated: Mapping[int, float]
    slots: int | None = None
    ignored: tuple[str, ...] = ()


@dataclass(slots=True)
class Consensus:
    """The limits on which the tenants of a domain agree. One per domain and process. Spec: R50."""

    only: str | None = ""  # the only tenant of the domain; None: several tenants share its limits
    latest: dict[str, tuple[tuple[float, ...], str | None]] = field(default_factory=dict)
    """By limit: the numbers in the latest response, and its tenant (None: two tenants agree on them)."""

    def agrees(self, limit: str, numbers: tuple[float, ...], tenant: str) -> bool:
        """Return whether responses to two tenants state these *numbers*, without others in between."""
        if self.only is not None:
            return True
        latest, source = self.latest.get(limit, (None, None))
        is_agreed = latest == numbers and source != tenant
        self.latest[limit] = numbers, None if is_agreed else tenant
        return is_agreed


@dataclass(slots=True)
class Doubts:
    """The latest numbers that were ignored, by bucket. One per plan and process."""

    ignored: dict[str, tuple[float, float]] = field(default_factory=dict)
    slots: float | None = None
    tenant: str = ""
    consensus: Consensus = field(default_factory=Consensus)

    def believes(self, bucket: str, stated: tuple[float, float], current: tuple[float, float]) -> bool:
        """Return whether a stated (capacity, per_s) counts: it is near the current one, or stated twice."""
        if not self.consensus.agrees(bucket, stated, self.tenant):
            return False
        if _is_near(stated, current):
            self.ignored.pop(bucket, None)
            return True
        previous = self.ignored.get(bucket)
        self.ignored[bucket] = stated
        return previous is not None and _is_near(stated, previous)

    def believed_slots(self, stated: float, current: int | None) -> int | None:
        """Return *stated* as a number of slots; None if it does not count, by the rule of `believes`."""
        previous, self.slots = self.slots, stated
        is_near = any(_is_near((stated,), (n,)) for n in (current or stated, previous) if n is not None)
        is_believed = self.consensus.agrees(CONCURRENCY, (stated,), self.tenant) and is_near
        return int(stated) if is_believed and stated <= MAX_SLOTS else None


def observations_for(
    plan: Plan, items: Iterable[LimitObservation], doubts: Doubts | None = None
) -> Observations:
    """Return what *items* say about the buckets of *plan*; *doubts* holds what earlier responses stated."""
    doubts = Doubts() if doubts is None else doubts
    ignored: list[str] = []
    observed: dict[int, Observation] = {}
    actual: dict[int, float] = {}
    estimated: dict[int, float] = {}
    slots: int | None = None
    unknown_s: float | None = None
    indexes = {bucket.name: index for index, bucket in enumerate(plan.buckets) if bucket.name}
    for item in items:
        index = indexes.get(item.limit)
        if index is not None:
            bucket = plan.buckets[index]
            observed[index], is_ignored = _observation(item, bucket, doubts)
            max_cost = (
                observed[index].capacity or bucket.capacity
            )  # no call costs more than the bucket can hold
            if item.actual is not None or item.refused:
                actual[index] = min(item.actual or 0.0, max_cost)  # a refused call was not run
            if (cost := item.requested or item.actual) is not None:
                estimated[index] = min(cost, max_cost)
            ignored += [item.limit] * (
                is_ignored or max(item.actual or 0.0, item.requested or 0.0) > max_cost
            )
        elif item.limit == CONCURRENCY and item.capacity is not None:
            planned = None if plan.pool is None else plan.pool.capacity
            slots = doubts.believed_slots(item.capacity, planned)
            ignored += [item.limit] * (slots is None and item.capacity != planned)
        elif item.refused and item.limit not in _OF_SOME_CALLS:
            unknown_s = max(unknown_s or 0.0, _wait_s(item) or 0.0)
    if unknown_s is not None:
        for other in range(len(plan.buckets)):
            previous = observed.get(other)
            observed[other] = (
                Observation(wait_s=unknown_s) if previous is None else replace(previous, held_s=unknown_s)
            )
    return Observations(observed, actual, estimated, slots or None, tuple(ignored))


def _is_near(stated: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= FAR * b and b <= FAR * a for a, b in zip(stated, other, strict=True))


def _observation(item: LimitObservation, bucket: BucketLimit, doubts: Doubts) -> tuple[Observation, bool]:
    """Return the observation in *item*, and whether new numbers for the limit were rejected."""
    capacity, per_s = item.capacity, item.per_s
    is_ignored = capacity is not None or per_s is not None
    if item.window_s and capacity is not None and capacity > 1:
        burst = max(1.0, capacity / 10)  # as per_window computes it, which raises for an impossible bucket
        capacity, per_s = burst, (capacity - burst) / item.window_s
    elif item.window_s:
        capacity = None
    if capacity is not None or per_s is not None:
        current = bucket.capacity, bucket.per_s
        stated = capacity or bucket.capacity, per_s or bucket.per_s
        is_ignored = not (is_bucket(*stated) and doubts.believes(bucket.key, stated, current))
        if is_ignored:
            capacity, per_s, is_ignored = None, None, stated != current
    wait_s = _wait_s(item)
    unit_s = 1 / (per_s or bucket.per_s)
    if wait_s is None and item.remaining == 0 and item.reset_s is not None and item.reset_s < unit_s:
        reset_s = clamp_hint(item.reset_s, daily_limit=item.daily)  # all of it comes back at once, and sooner
        return Observation(capacity or bucket.capacity, capacity, per_s, held_s=reset_s), is_ignored
    return Observation(item.remaining, capacity, per_s, wait_s), is_ignored


def _wait_s(item: LimitObservation) -> float | None:
    """Return for how long nothing may be sent; None if the response says how much is left.

    In that case the bucket knows to the millisecond when it has enough again, and need not be emptied. A
    daily limit without a time of its reset is tried again after a while, since the provider's day may end at
    any time.
    """
    if item.wait_s is None or (item.remaining is not None and item.requested is not None):
        return None
    wait_s = item.wait_s or (HINT_CAP_S if item.daily else 0.0)
    return clamp_hint(wait_s, daily_limit=item.daily)
