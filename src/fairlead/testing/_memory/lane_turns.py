"""Whose turn it is: lanes in virtual time, one job at a time (Q6, R16, R17).

A lane is ready while a job of it could be claimed: due, not paused, room under every cap. A lane that becomes
ready starts at its class's virtual clock, so that nobody saves up turns he does not want yet, and behind the
lanes that its tenant has there already, so that many small groups do not all come first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from datetime import datetime

from fairlead.engine.ports import ClaimFilter
from fairlead.policy.jobs.job import Priority
from fairlead.policy.jobs.lane import LONGEST_WAIT_S, QUANTUM, stride
from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory.capacity import Room, pauses_of, weight_of
from fairlead.testing._memory.database import MemoryDatabase
from fairlead.testing._memory.lane_rows import LaneKey, LaneRow, lane_key
from fairlead.testing._memory.rows import JobRow

MOST_SIBLINGS = 64
"""Ready lanes of one tenant that count in the charge."""
AGE_STEP_S = LONGEST_WAIT_S / len(Priority)
"""A lane that waited so long moves up one class: it is in the first one well before its longest wait."""
MOST_COUNTED = 1_000
"""Where figures for people stop."""

Due = dict[LaneKey, deque[JobRow]]


def is_wanted(lane: LaneKey, wanted: ClaimFilter) -> bool:
    """True for work that a worker takes."""
    return (
        (not wanted.queues or lane.queue in wanted.queues)
        and (not wanted.kinds or lane.kind in wanted.kinds)
        and (not wanted.providers or lane.provider in wanted.providers)
    )


def is_claimable(row: JobRow, now: datetime) -> bool:
    """True for a job that is available, due and not expired."""
    if row.state is not JobState.AVAILABLE or row.run_at > now:
        return False
    return row.expires_at is None or row.expires_at > now


# ---- ready or not ------------------------------------------------------------------------------


def note_work(database: MemoryDatabase, row: JobRow) -> None:
    """A job has come: its lane is ready from now on, if nothing holds it."""
    key = lane_key(row)
    if row.crash_count == 0 and is_claimable(row, database.now) and not pauses_of(database, key):
        _make_ready(database, _lane(database, key))


def settle(database: MemoryDatabase, room: Room | None = None) -> Due:
    """Bring every lane up to date; the due jobs of those that are ready, in the order of each lane."""
    room = room or Room(database)
    due = _due_by_lane(database)
    paused = {key for key in due if pauses_of(database, key)}
    capped = {key for key in due if key not in paused and not room.has(key)}
    for key in paused | capped:
        del due[key]
    for key, lane in database.fair.lanes.items():
        if key not in due and key not in capped:
            lane.ready, lane.is_capped, lane.aged_to = False, False, None
    for key in capped:
        _wait_for_room(database, _lane(database, key))
    for key in due:
        _make_ready(database, _lane(database, key))
    return due


def _due_by_lane(database: MemoryDatabase) -> Due:
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


def _wait_for_room(database: MemoryDatabase, lane: LaneRow) -> None:
    """Its wait began when it was served or became ready, not when the cap got full."""
    if not lane.ready and not lane.is_capped:
        lane.served_at = database.now
    lane.ready, lane.is_capped = False, True


def age(database: MemoryDatabase, lane: LaneRow) -> bool:
    """Move *lane* up by one class for every step it has waited, to the place of the rearmost there."""
    assert lane.served_at is not None
    steps = int((database.now - lane.served_at).total_seconds() // AGE_STEP_S)
    level = max(0, lane.key.priority - steps)
    if level >= lane.level:
        return False
    lane.aged_vtime = class_clock(database, lane.key.queue, level, lane.key.kind)
    lane.aged_to = level
    return True


def _siblings(lanes: Iterable[LaneRow], tenant_id: str) -> list[LaneRow]:
    """Those of one tenant, as far as they count."""
    return [lane for lane in lanes if lane.key.tenant_id == tenant_id][:MOST_SIBLINGS]


def class_clock(database: MemoryDatabase, queue: str, level: int, kind: str) -> int:
    """Where work of *kind* has got to in a class: its rearmost ready lane, or the rearmost of all kinds.

    Lanes of a kind that nobody takes stay behind for ever: others do not begin there. Where nothing is ready,
    it is as far as the class ever was.
    """
    lanes = ready_lanes(database, queue, level)
    of_kind = [lane.place for lane in lanes if lane.key.kind == kind]
    places = of_kind or [lane.place for lane in lanes]
    return min(places) if places else database.fair.furthest.get((queue, level), 0)


def ready_lanes(database: MemoryDatabase, queue: str, level: int) -> list[LaneRow]:
    """The ready lanes of one class, in the order of their turns."""
    lanes = [
        lane
        for lane in database.fair.lanes.values()
        if lane.ready and lane.key.queue == queue and lane.level == level
    ]
    return sorted(lanes, key=_turn)


def _turn(lane: LaneRow) -> tuple[object, ...]:
    key = lane.key
    return lane.place, lane.served_at, key.tenant_id, key.group_key, key.kind, key.provider or ""


# ---- taking turns ------------------------------------------------------------------------------


class Turns:
    """One claim: jobs in fair order. *first*: which of the wanted queues is asked first in each class."""

    def __init__(self, database: MemoryDatabase, wanted: ClaimFilter, first: int) -> None:
        self._database = database
        self._wanted = wanted
        self._room = Room(database)
        self._due = settle(database, self._room)
        queues = list(wanted.queues) or sorted({key.queue for key in self._due})
        self._queue_turn = {name: (place - first) % len(queues) for place, name in enumerate(queues)}
        self._last: tuple[str, int, str] | None = None  # queue, class and tenant that were served last
        self._in_a_row = 0

    def take(self, demand: int) -> list[JobRow]:
        """The next *demand* jobs, fewer if there are no more; their lanes are charged."""
        taken: list[JobRow] = []
        while len(taken) < demand and (lanes := self._first_class()):
            lane = self._next_of(lanes)
            self._count(lane)
            self._charge(lane, lanes)
            taken.append(self._due[lane.key].popleft())
            self._room.take(lane.key)
            self._drop_spent()
        return taken

    def _drop_spent(self) -> None:
        """Lanes that ran empty, or have no room under a cap any more, are ready no longer."""
        for key in [key for key, jobs in self._due.items() if not jobs or not self._room.has(key)]:
            lane = self._database.fair.lanes[key]
            lane.ready, lane.is_capped = False, bool(self._due.pop(key))

    def _first_class(self) -> list[LaneRow]:
        """The lanes of the most urgent class that has work, of one queue, in the order of their turns."""
        lanes = [self._database.fair.lanes[key] for key in self._due if is_wanted(key, self._wanted)]
        classes = [(lane.level, self._queue_turn[lane.key.queue]) for lane in lanes]
        first = min(classes, default=None)
        return sorted((lane for lane, its in zip(lanes, classes, strict=True) if its == first), key=_turn)

    def _next_of(self, lanes: list[LaneRow]) -> LaneRow:
        """The rearmost lane, but while others wait none of a tenant that just had its quantum."""
        if self._in_a_row < QUANTUM:
            return lanes[0]
        return next((lane for lane in lanes if _whose(lane) != self._last), lanes[0])

    def _count(self, lane: LaneRow) -> None:
        self._in_a_row = self._in_a_row + 1 if _whose(lane) == self._last else 1
        self._last = _whose(lane)

    def _charge(self, lane: LaneRow, lanes: list[LaneRow]) -> None:
        """Move *lane* on by its stride for each lane its tenant has ready; home again if it had aged."""
        database, key, start = self._database, lane.key, lane.place
        ready = ready_lanes(database, key.queue, lane.level)
        charge = stride(weight_of(database, key.tenant_id)) * len(_siblings(ready, key.tenant_id))
        for passed_over in lanes:  # its quantum kept it from more: that is not saved up
            passed_over.rise_to(start - charge)
        lane.aged_to = None
        lane.vtime += charge
        lane.served_at, lane.consecutive = database.now, self._in_a_row
        lane.processed += 1
        furthest, own = database.fair.furthest, (key.queue, key.priority)
        furthest[own] = max(furthest.get(own, 0), lane.vtime)


def _whose(lane: LaneRow) -> tuple[str, int, str]:
    return lane.key.queue, lane.level, lane.key.tenant_id
