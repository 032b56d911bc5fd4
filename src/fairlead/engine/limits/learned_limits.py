"""Limits learned from responses, stored in PostgreSQL so that they survive a loss of Redis. Spec: G3.

A provider states its limits in each response, so most observations change nothing and cost a comparison. A
change is written in the background, at most once a minute for each bucket. The next cold start begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports import SLOTS_LIMIT, Connection, GateNotes, LearnedLimit, Observation
from fairlead.events import Emit
from fairlead.policy.limits.limit import Plan, is_bucket

WRITE_INTERVAL_S = 2.0
MIN_INTERVAL_S = 60.0
"""The least time between two writes of one bucket."""
_MAX_ENTRIES = 50_000
_BATCH_SIZE = 1000

_Key = tuple[UUID, str]


@dataclass(slots=True)
class _Stored:
    """A limit as it was written last."""

    limit: LearnedLimit
    written_mono: float


class LearnedLimitsWriter:
    """Writes the learned limits of one process."""

    def __init__(self, notes: GateNotes, *, clock: Clock) -> None:
        self._notes = notes
        self._clock = clock
        self._stored: dict[_Key, _Stored] = {}
        self._unwritten: dict[_Key, LearnedLimit] = {}

    def record(
        self,
        connection: Connection,
        plan: Plan,
        observed: Mapping[int, Observation],
        slots: int | None = None,
    ) -> None:
        """Record what a response to a call under *plan* states."""
        if slots is not None and plan.pool is not None:
            planned = LearnedLimit(
                connection.connection_id, SLOTS_LIMIT, connection.version, plan.pool.capacity, 1.0
            )
            self._merge(planned, slots, None)
        for index, observation in observed.items():
            if observation.capacity is not None or observation.per_s is not None:
                bucket = plan.buckets[index]
                planned = LearnedLimit(
                    connection.connection_id, bucket.name, connection.version, bucket.capacity, bucket.per_s
                )
                self._merge(planned, observation.capacity, observation.per_s)

    def _merge(self, planned: LearnedLimit, capacity: float | None, per_s: float | None) -> None:
        """Queue a limit to be written if the stated *capacity* or *per_s* differ from the latest ones.

        Args:
            planned: The limit as the call's plan has it.
        """
        key = (planned.connection_id, planned.limit)
        latest = self._unwritten.get(key)
        if latest is None and key in self._stored:
            latest = self._stored[key].limit
        if latest is None or latest.version != planned.version:
            latest = planned
        limit = replace(
            latest,
            capacity=latest.capacity if capacity is None else capacity,
            per_s=latest.per_s if per_s is None else per_s,
        )
        if limit != latest and is_bucket(limit.capacity, limit.per_s) and len(self._unwritten) < _MAX_ENTRIES:
            self._unwritten[key] = limit

    async def write(self, *, write_all: bool = False) -> None:
        """Write the changed limits that are due.

        Args:
            write_all: Whether to write those too that are not due yet, because the process ends.
        """
        now_mono = self._clock.monotonic()
        due = [limit for key, limit in self._unwritten.items() if write_all or self._is_due(key, now_mono)]
        for start in range(0, len(due), _BATCH_SIZE):
            batch = due[start : start + _BATCH_SIZE]
            await self._notes.save(batch)
            for limit in batch:
                self._record_written(limit, now_mono)

    def _is_due(self, key: _Key, now_mono: float) -> bool:
        stored = self._stored.get(key)
        return stored is None or now_mono - stored.written_mono >= MIN_INTERVAL_S

    def _record_written(self, limit: LearnedLimit, now_mono: float) -> None:
        """Record that *limit* was written, unless it has changed again meanwhile."""
        key = (limit.connection_id, limit.limit)
        if self._unwritten.get(key) == limit:  # else it has changed again meanwhile
            del self._unwritten[key]
        if len(self._stored) >= _MAX_ENTRIES:
            self._stored.clear()  # at worst one is written once more
        self._stored[key] = _Stored(limit, now_mono)

    def service(self, *, draw: Draw, emit: Emit) -> Service:
        """Return the writing as a background service."""
        return Service(
            "gate-observed-limits",
            self.write,
            interval_s=WRITE_INTERVAL_S,
            clock=self._clock,
            draw=draw,
            emit=emit,
        )
