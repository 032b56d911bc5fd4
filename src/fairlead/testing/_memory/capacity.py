"""Pauses and concurrency caps, which keep due jobs from running.

Spec: Q6, Q7.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from fairlead.policy.jobs.explain import FullCap
from fairlead.policy.jobs.lane import is_internal_kind
from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory.database import MemoryDatabase
from fairlead.testing._memory.lane_rows import LaneKey, PauseRow, covers, lane_key

CAP_POLL_S = 1.0
"""How soon to check a full cap again."""


def pauses_of(database: MemoryDatabase, lane: LaneKey) -> list[PauseRow]:
    """Return the pauses in force for *lane*, which waits until all of them have ended."""
    return [pause for pause in pauses_in_force(database) if covers(pause.scope, lane)]


def pauses_in_force(database: MemoryDatabase) -> list[PauseRow]:
    """Return all pauses that have not ended."""
    pauses = database.fair.pauses.values()
    if not pauses:
        return []
    now = database.now
    return [pause for pause in pauses if pause.until is None or pause.until > now]


def last_end(pauses: list[PauseRow]) -> datetime | None:
    """Return when the last of some pauses ends; None if one lasts until it is resumed."""
    ends = [pause.until for pause in pauses if pause.until is not None]
    return max(ends) if len(ends) == len(pauses) else None


def weight_of(database: MemoryDatabase, tenant_id: str) -> float:
    """Return a tenant's own weight, else its tier's, else 1."""
    share = database.fair.tenants.get(tenant_id)
    if share is None:
        return 1.0
    tier = database.fair.tiers.get(share.tier or "")
    return share.weight or (tier.weight if tier is not None else None) or 1.0


def cap_of(database: MemoryDatabase, tenant_id: str) -> int | None:
    """Return a tenant's own cap, else its tier's, else None."""
    share = database.fair.tenants.get(tenant_id)
    if share is None:
        return None
    tier = database.fair.tiers.get(share.tier or "")
    return share.max_running or (tier.max_running if tier is not None else None)


class CapUsage:
    """The jobs that run under each cap, in all queues, classes and kinds."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._running: Counter[tuple[str | None, str | None]] = Counter()
        for row in database.jobs.values():
            if row.state is JobState.RUNNING:
                self.count(lane_key(row))

    def count(self, lane: LaneKey) -> None:
        """Count one more running job of *lane*."""
        for holder in _holders(lane):
            self._running[holder] += 1

    def allows(self, lane: LaneKey) -> bool:
        """Return whether no cap keeps the next job of *lane* from running."""
        return not self.full_caps(lane)

    def full_caps(self, lane: LaneKey) -> list[FullCap]:
        """Return the full caps that apply to *lane*."""
        caps = [FullCap(*holder, cap) for holder in _holders(lane) if (cap := self._cap(*holder)) is not None]
        return [cap for cap in caps if self._running[cap.tenant_id, cap.group_key] >= cap.max_running]

    def _cap(self, tenant_id: str | None, group_key: str | None) -> int | None:
        if group_key is not None:
            cap = self._database.fair.group_caps.get((group_key, tenant_id))
            return cap.max_running if cap is not None else None
        assert tenant_id is not None
        return cap_of(self._database, tenant_id)


def _holders(lane: LaneKey) -> list[tuple[str | None, str | None]]:
    """Return tenant and group of the caps that a job of *lane* counts under: its tenant's, and its group's two."""
    if is_internal_kind(lane.kind):
        return []
    tenant_cap = (lane.tenant_id, None)
    if not lane.group_key:
        return [tenant_cap]
    return [tenant_cap, (lane.tenant_id, lane.group_key), (None, lane.group_key)]
