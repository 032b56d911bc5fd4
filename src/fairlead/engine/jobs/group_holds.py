"""Hold groups until their reservation at a provider's limits: one write for all jobs that are refused.

A job that the gate refuses returns to its place in its group, and no job of the group starts before that
time. So no later job overtakes it, none is claimed in vain, and other tenants continue. Spec: Q7, R26.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from fairlead._core.clock import Clock
from fairlead.engine.ports import Job
from fairlead.policy.jobs.job import Snooze, check_delay
from fairlead.policy.jobs.lane import Scope

MIN_HOLD_S = 0.05
"""The shortest hold that is written."""
REWRITE_AFTER_S = 1.0
"""How long a hold is assumed to exist after it was written; later an operator may have ended it."""
_MAX_ENTRIES = 10_000


class Pauses(Protocol):
    """The part of the LaneStore that stores the pauses and holds of runs."""

    async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
        """Start no job of *scope* for *for_s* seconds; see `LaneStore.pause`."""
        ...

    async def hold(self, tenant: str, group: str, for_s: float, *, reason: str) -> None:
        """Start no job of a tenant's group for *for_s* seconds; see `LaneStore.hold`."""
        ...


class _WrittenHold(NamedTuple):
    written_mono: float
    until_mono: float


class GroupHolds:
    """The holds that this process wrote lately, so that refused jobs of one group write only one.

    Args:
        pauses: Stores the holds. None: none is written, and each refused job waits by itself.
        clock: The process's clock.
    """

    def __init__(self, pauses: Pauses | None, clock: Clock) -> None:
        self._pauses = pauses
        self._clock = clock
        self._written: dict[tuple[str, str], _WrittenHold] = {}

    async def hold_group(self, job: Job, snooze: Snooze) -> Snooze:
        """Hold the group of *job* and return *snooze*, or a plain wait if the group cannot be held."""
        try:
            is_held = self._pauses is not None and bool(job.group_key) and await self._write_hold(job, snooze)
        except Exception:  # noqa: BLE001 (whatever the store says, or a handler had made of it)
            is_held = False
        return snooze if is_held else replace(snooze, in_place=False)

    async def _write_hold(self, job: Job, snooze: Snooze) -> bool:
        """Write the hold, unless one that ends earlier was just written. Return True: the group is held."""
        assert self._pauses is not None
        group, now_mono = (job.tenant_id, job.group_key), self._clock.monotonic()
        for_s = max(MIN_HOLD_S, check_delay("snooze", snooze.delay_s))
        written_mono, until_mono = self._written.get(group, _WrittenHold(-REWRITE_AFTER_S, 0.0))
        is_fresh = now_mono - written_mono < REWRITE_AFTER_S
        if not (is_fresh and now_mono < until_mono <= now_mono + for_s):  # else: already held until then
            await self._pauses.hold(*group, for_s, reason=snooze.reason)
            self._record_written(group, now_mono, now_mono + for_s)
        return True

    def _record_written(self, group: tuple[str, str], now_mono: float, until_mono: float) -> None:
        if len(self._written) >= _MAX_ENTRIES:
            self._written.clear()  # at worst a hold is written once more
        self._written[group] = _WrittenHold(now_mono, until_mono)
