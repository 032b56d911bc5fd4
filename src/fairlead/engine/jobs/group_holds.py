"""Groups that wait for their turn at a provider's limits: one write for all jobs that are told so.

A job that the gate has no room for goes back into its old place, and nothing of its group begins before its
turn: no later job takes it, none is claimed in vain, and other tenants run on (Q7, R26).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from fairlead._core.clock import Clock
from fairlead.engine.ports import Job
from fairlead.policy.jobs.job import Snooze, check_delay
from fairlead.policy.jobs.lane import Scope

LEAST_S = 0.05
WRITTEN_S = 1.0
"""For so long after it was written a hold is taken to stand; then somebody may have ended it."""
_KNOWN = 10_000


class Pauses(Protocol):
    """The part of the LaneStore that handlers reach, by their context or by being refused."""

    async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int: ...

    async def hold(self, tenant: str, group: str, for_s: float, *, reason: str) -> None: ...


class GroupHolds:
    """The holds that this process wrote. *pauses* None: nowhere, so that each job only waits itself."""

    def __init__(self, pauses: Pauses | None, clock: Clock) -> None:
        self._pauses = pauses
        self._clock = clock
        self._written: dict[tuple[str, str], tuple[float, float]] = {}  # when, until when

    async def hold_group(self, job: Job, snooze: Snooze) -> Snooze:
        """*snooze* in place, once its group is held; as a plain wait where it cannot be."""
        try:
            held = self._pauses is not None and bool(job.group_key) and await self._write_hold(job, snooze)
        except Exception:  # noqa: BLE001 (whatever the store says, or a handler had made of it)
            held = False
        return snooze if held else replace(snooze, in_place=False)

    async def _write_hold(self, job: Job, snooze: Snooze) -> bool:
        assert self._pauses is not None
        group, now_s = (job.tenant_id, job.group_key), self._clock.monotonic()
        for_s = max(LEAST_S, check_delay("snooze", snooze.delay_s))
        written_s, until_s = self._written.get(group, (-WRITTEN_S, 0.0))
        fresh = now_s - written_s < WRITTEN_S
        if not (fresh and now_s < until_s <= now_s + for_s):  # else: to an earlier turn already
            await self._pauses.hold(*group, for_s, reason=snooze.reason)
            self._note(group, now_s, now_s + for_s)
        return True

    def _note(self, group: tuple[str, str], now_s: float, until_s: float) -> None:
        if len(self._written) >= _KNOWN:
            self._written.clear()  # at worst a hold is written once more
        self._written[group] = (now_s, until_s)
