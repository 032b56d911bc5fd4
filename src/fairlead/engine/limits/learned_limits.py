"""Keeps what answers told of limits beyond the life of Redis: written down when it changed (G3).

A provider tells its limits in each answer, so most notes say nothing new and cost a comparison. What differs
is written beside the calls, a bucket at most once a minute; the next cold start begins with it (Plans).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports import Connection
from fairlead.engine.ports.gate import Observation
from fairlead.engine.ports.gate_notes import SLOTS, GateNotes, LearnedLimit
from fairlead.events import Emit
from fairlead.policy.limits.limit import Plan, is_bucket

LOOK_S = 2.0
APART_S = 60.0
"""A bucket is written down at most so often."""
_MOST = 50_000
_BATCH = 1000

_Key = tuple[UUID, str]


@dataclass(slots=True)
class _Known:
    """What is written, and what is not yet."""

    limit: LearnedLimit
    written_s: float


class LearnedLimitsWriter:
    """One per process."""

    def __init__(self, notes: GateNotes, *, clock: Clock) -> None:
        self._notes = notes
        self._clock = clock
        self._known: dict[_Key, _Known] = {}
        self._unwritten: dict[_Key, LearnedLimit] = {}

    def record(
        self,
        connection: Connection,
        plan: Plan,
        observed: Mapping[int, Observation],
        slots: int | None = None,
    ) -> None:
        """An answer to a call under *plan* told this."""
        if slots is not None and plan.pool is not None:
            planned = LearnedLimit(
                connection.connection_id, SLOTS, connection.version, plan.pool.capacity, 1.0
            )
            self._note(planned, slots, None)
        for index, told in observed.items():
            if told.capacity is not None or told.per_s is not None:
                bucket = plan.buckets[index]
                planned = LearnedLimit(
                    connection.connection_id, bucket.name, connection.version, bucket.capacity, bucket.per_s
                )
                self._note(planned, told.capacity, told.per_s)

    def _note(self, planned: LearnedLimit, capacity: float | None, per_s: float | None) -> None:
        key = (planned.connection_id, planned.limit)
        latest = self._unwritten.get(key)
        if latest is None and key in self._known:
            latest = self._known[key].limit
        if latest is None or latest.version != planned.version:
            latest = planned
        learnt = replace(
            latest,
            capacity=latest.capacity if capacity is None else capacity,
            per_s=latest.per_s if per_s is None else per_s,
        )
        if learnt != latest and is_bucket(learnt.capacity, learnt.per_s) and len(self._unwritten) < _MOST:
            self._unwritten[key] = learnt

    async def write(self, *, all_of_it: bool = False) -> None:
        """Write what is due. *all_of_it*: whatever was written a moment ago; for the end."""
        now_s = self._clock.monotonic()
        due = [learnt for key, learnt in self._unwritten.items() if all_of_it or self._is_due(key, now_s)]
        for start in range(0, len(due), _BATCH):
            batch = due[start : start + _BATCH]
            await self._notes.keep(batch)
            for learnt in batch:
                self._wrote(learnt, now_s)

    def _is_due(self, key: _Key, now_s: float) -> bool:
        known = self._known.get(key)
        return known is None or now_s - known.written_s >= APART_S

    def _wrote(self, learnt: LearnedLimit, now_s: float) -> None:
        key = (learnt.connection_id, learnt.limit)
        if self._unwritten.get(key) == learnt:  # else it has changed again meanwhile
            del self._unwritten[key]
        if len(self._known) >= _MOST:
            self._known.clear()  # at worst one is written once more
        self._known[key] = _Known(learnt, now_s)

    def service(self, *, draw: Draw, emit: Emit) -> Service:
        """The writing, as a background service."""
        return Service(
            "gate-notebook", self.write, interval_s=LOOK_S, clock=self._clock, draw=draw, emit=emit
        )
