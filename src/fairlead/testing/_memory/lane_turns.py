"""The order of lanes in virtual time, one job at a time.

A lane is ready while one of its jobs can be claimed: it is due, not paused, and under every cap. A lane that becomes
ready starts at its class's virtual clock, so that an idle lane saves up no turns, and behind the lanes that its
tenant has there already, so that many small groups do not all come first.
Spec: Q6, R16, R17.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from datetime import datetime

from fairlead.engine.ports import ClaimFilter
from fairlead.policy.jobs.job import Priority
from fairlead.policy.jobs.lane import LONGEST_WAIT_S, QUANTUM, stride
from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory.capacity import CapUsage, pauses_of, weight_of
from fairlead.testing._memory.database import MemoryDatabase
from fairlead.testing._memory.lane_rows import LaneKey, LaneRow, lane_key
from fairlead.testing._memory.rows import JobRow

MOST_SIBLINGS = 64
"""Ready lanes of one tenant that count in the charge."""
AGE_STEP_S = LONGEST_WAIT_S / len(Priority)
"""A lane that has waited so long moves up one class, and so reaches the first one before its longest wait."""
MOST_COUNTED = 1_000
"""The largest count in views."""

Due = dict[LaneKey, deque[JobRow]]


def is_wanted(lane: LaneKey, claim_filter: ClaimFilter) -> bool:
    """Return whether a worker with this filter takes jobs of *lane*."""
    return (
        (not claim_filter.queues or lane.queue in claim_filter.queues)
        and (not claim_filter.kinds or lane.kind in claim_filter.kinds)
        and (not claim_filter.providers or lane.provider in claim_filter.providers)
    )


def is_claimable(row: JobRow, now: datetime) -> bool:
    """Return whether a job is available, due and not expired."""
    if row.state is not JobState.AVAILABLE or row.run_at > now:
        return False
    return row.expires_at is None or row.expires_at > now


# ---- ready or not ------------------------------------------------------------------------------


def note_work(database: MemoryDatabase, row: JobRow) -> None:
    """Make the lane of a new job ready, unless it is paused."""
    key = lane_key(row)
    if row.crash_count == 0 and is_claimable(row, database.now) and not pauses_of(database, key):
        _make_ready(database, _lane(database, key))


def settle(database: MemoryDatabase, usage: CapUsage | None = None) -> Due:
    """Update every lane, and return the due jobs of the ready ones, in the order of each lane."""
    usage = usage or CapUsage(database)
    due = _due_by_lane(database)
    paused = {key for key in due if pauses_of(database, key)}
    capped = {key for key in due if key not in paused and not usage.allows(key)}
    for key in paused | capped:
        del due[key]
    for key, lane in database.fair.lanes.items():
        if key not in due and key not in capped:
            lane.ready, lane.is_capped, lane.aged_to = False, False, None
    for key in capped:
        _wait_for_cap(database, _lane(database, key))
    for key in due:
        _make_ready(database, _lane(database, key))
    return due


def _due_by_lane(database: MemoryDatabase) -> Due:
    """Return the jobs that can be claimed by lane; those that were in a crash are claimed separately."""
    due: Due = defaultdict(deque)
    now = database.now
    claimable = [row for row in database.jobs.values() if is_claimable(row, now)]
    for row in sorted(claimable, key=lambda row: (row.run_at, row.job_id)):
        if row.crash_count == 0:
            due[lane_key(row)].append(row)
    return dict(due)


def _lane(database: MemoryDatabase, key: LaneKey) -> LaneRow:
    return database.fair.lanes.setdefault(key, LaneRow(key))


def _make_ready(database: MemoryDatabase, lane: LaneRow) -> None:
    """Mark *lane* as ready, behind its class's clock and its tenant's other lanes."""
    if not lane.ready:
        key = lane.key
        behind = len(_siblings(ready_lanes(database, key.queue, key.priority), key.tenant_id))
        start = class_clock(database, key.queue, key.priority, key.kind)
        start += QUANTUM * stride(weight_of(database, key.tenant_id)) * behind
        lane.vtime, lane.ready = max(lane.vtime, start), True
        if lane.is_capped:
            age(database, lane)
        else:
            lane.served_at = database.now
        lane.is_capped = False


def _wait_for_cap(database: MemoryDatabase, lane: LaneRow) -> None:
    """Mark *lane* as capped; its wait counts from when it was served or became ready."""
    if not lane.ready and not lane.is_capped:
        lane.served_at = database.now
    lane.ready, lane.is_capped = False, True


def age(database: MemoryDatabase, lane: LaneRow) -> bool:
    """Move *lane* up by one class for every step it has waited, to the lowest virtual time there."""
    assert lane.served_at is not None
    steps = int((database.now - lane.served_at).total_seconds() // AGE_STEP_S)
    level = max(0, lane.key.priority - steps)
    if level >= lane.level:
        return False
    lane.aged_vtime = class_clock(database, lane.key.queue, level, lane.key.kind)
    lane.aged_to = level
    return True


def _siblings(lanes: Iterable[LaneRow], tenant_id: str) -> list[LaneRow]:
    """Return the lanes of one tenant, up to the number that is charged."""
    return [lane for lane in lanes if lane.key.tenant_id == tenant_id][:MOST_SIBLINGS]


def class_clock(database: MemoryDatabase, queue: str, level: int, kind: str) -> int:
    """Return the virtual clock of *kind* in a class: the lowest time of its ready lanes, or of all kinds.

    Lanes of a kind without workers stay behind for ever, so other kinds do not start there. If no lane is ready, it
    is the furthest time of the class.
    """
    lanes = ready_lanes(database, queue, level)
    of_kind = [lane.position for lane in lanes if lane.key.kind == kind]
    positions = of_kind or [lane.position for lane in lanes]
    return min(positions) if positions else database.fair.furthest.get((queue, level), 0)


def ready_lanes(database: MemoryDatabase, queue: str, level: int) -> list[LaneRow]:
    """Return the ready lanes of one class, in the order of their turns."""
    lanes = [
        lane
        for lane in database.fair.lanes.values()
        if lane.ready and lane.key.queue == queue and lane.level == level
    ]
    return sorted(lanes, key=_turn)


def _turn(lane: LaneRow) -> tuple[object, ...]:
    key = lane.key
    return lane.position, lane.served_at, key.tenant_id, key.group_key, key.kind, key.provider or ""


# ---- taking turns ------------------------------------------------------------------------------


class Turns:
    """One claim of jobs in fair order; *first* is the index of the queue that comes first in each class."""

    def __init__(self, database: MemoryDatabase, claim_filter: ClaimFilter, first: int) -> None:
        self._database = database
        self._filter = claim_filter
        self._usage = CapUsage(database)
        self._due = settle(database, self._usage)
        queues = list(claim_filter.queues) or sorted({key.queue for key in self._due})
        self._queue_turn = {name: (index - first) % len(queues) for index, name in enumerate(queues)}
        self._last: tuple[str, int, str] | None = None  # queue, class and tenant that were served last
        self._in_a_row = 0

    def take(self, demand: int) -> list[JobRow]:
        """Return the next *demand* jobs, fewer if there are no more, and charge their lanes."""
        rows: list[JobRow] = []
        while len(rows) < demand and (lanes := self._first_class()):
            lane = self._next_of(lanes)
            self._count(lane)
            self._charge(lane, lanes)
            rows.append(self._due[lane.key].popleft())
            self._usage.count(lane.key)
            self._drop_spent()
        return rows

    def _drop_spent(self) -> None:
        """Mark as not ready the lanes that are empty or have reached a cap."""
        for key in [key for key, jobs in self._due.items() if not jobs or not self._usage.allows(key)]:
            lane = self._database.fair.lanes[key]
            lane.ready, lane.is_capped = False, bool(self._due.pop(key))

    def _first_class(self) -> list[LaneRow]:
        """Return the lanes of the most urgent class with work, of one queue, in the order of their turns."""
        lanes = [self._database.fair.lanes[key] for key in self._due if is_wanted(key, self._filter)]
        classes = [(lane.level, self._queue_turn[lane.key.queue]) for lane in lanes]
        first = min(classes, default=None)
        return sorted(
            (lane for lane, lane_class in zip(lanes, classes, strict=True) if lane_class == first), key=_turn
        )

    def _next_of(self, lanes: list[LaneRow]) -> LaneRow:
        """Return the lane with the lowest time; skip a tenant that just had its quantum while others wait."""
        if self._in_a_row < QUANTUM:
            return lanes[0]
        return next((lane for lane in lanes if _served_key(lane) != self._last), lanes[0])

    def _count(self, lane: LaneRow) -> None:
        self._in_a_row = self._in_a_row + 1 if _served_key(lane) == self._last else 1
        self._last = _served_key(lane)

    def _charge(self, lane: LaneRow, lanes: list[LaneRow]) -> None:
        """Move *lane* on by its stride for each ready lane of its tenant, and return an aged one to its class."""
        database, key, start = self._database, lane.key, lane.position
        ready = ready_lanes(database, key.queue, lane.level)
        charge = stride(weight_of(database, key.tenant_id)) * len(_siblings(ready, key.tenant_id))
        for passed_over in lanes:  # a turn skipped because of the quantum is not saved up
            passed_over.rise_to(start - charge)
        lane.aged_to = None
        lane.vtime += charge
        lane.served_at, lane.consecutive = database.now, self._in_a_row
        lane.processed += 1
        furthest, own_class = database.fair.furthest, (key.queue, key.priority)
        furthest[own_class] = max(furthest.get(own_class, 0), lane.vtime)


def _served_key(lane: LaneRow) -> tuple[str, int, str]:
    return lane.key.queue, lane.level, lane.key.tenant_id
