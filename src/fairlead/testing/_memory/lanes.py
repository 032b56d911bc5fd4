"""Fair shares in memory; see ``fairlead.engine.ports.LaneStore``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import (
    Explanation,
    GroupCap,
    PauseView,
    Swept,
    TenantShare,
    TenantTurn,
    Tier,
    UnhandledKind,
)
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.lane import (
    QUANTUM,
    STRIDE,
    Scope,
    ScopeKind,
    current_priority,
    stride,
)
from fairlead.policy.jobs.states import JobState
from fairlead.policy.text.names import shown
from fairlead.testing._memory.capacity import cap_of, pauses_in_force, weight_of
from fairlead.testing._memory.database import STARTED, MemoryStore, seconds, statement
from fairlead.testing._memory.explain import explained, is_handled
from fairlead.testing._memory.lane_rows import LaneRow, PauseRow, covers, lane_key
from fairlead.testing._memory.lane_turns import (
    MOST_COUNTED,
    age,
    is_claimable,
    ready_lanes,
    settle,
)


class MemoryLaneStore(MemoryStore):
    """Pauses, shares and turns of a `MemoryDatabase`."""

    # ---- pauses --------------------------------------------------------------------------------

    @statement
    def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
        now = self.database.now
        until = None if for_s is None else now + seconds(for_s)
        previous = next((pause for pause in pauses_in_force(self.database) if pause.scope == scope), None)
        if previous is None:
            self.database.fair.pauses[scope] = PauseRow(scope, until, reason, by, now)
        elif _later(previous.until, until) == until:  # the later end counts, with its reason
            previous.until, previous.reason, previous.by = until, reason, by
        settle(self.database)
        return self._due_lanes(scope)

    @statement
    def hold(self, tenant: str, group: str, for_s: float, *, reason: str) -> None:
        scope, now = Scope(ScopeKind.RATE, group, tenant), self.database.now
        until = now + seconds(for_s)
        previous = next((pause for pause in pauses_in_force(self.database) if pause.scope == scope), None)
        if previous is None:
            self.database.fair.pauses[scope] = PauseRow(scope, until, reason, "gate", now)
        elif previous.until is None or until < previous.until:
            previous.until, previous.reason = until, reason
        settle(self.database)

    @statement
    def resume(self, scope: Scope) -> bool:
        in_force = any(pause.scope == scope for pause in pauses_in_force(self.database))
        self.database.fair.pauses.pop(scope, None)
        if in_force:
            for queue in sorted({key.queue for key in settle(self.database)}):
                self.database.notify(queue)
        return in_force

    @statement
    def due_lanes(self, scope: Scope) -> int:
        return self._due_lanes(scope)

    @statement
    def pauses(self, limit: int) -> list[PauseView]:
        rows = sorted(pauses_in_force(self.database), key=lambda row: row.since, reverse=True)
        return [
            PauseView(row.scope, row.until, row.reason, row.by, row.since, self._due_lanes(row.scope))
            for row in rows[:limit]
        ]

    def _due_lanes(self, scope: Scope) -> int:
        rows = self.database.jobs.values()  # after a crash a job is claimed by itself, not from its lane
        due = {lane_key(row) for row in rows if row.crash_count == 0 and is_claimable(row, self.database.now)}
        return sum(covers(scope, lane) for lane in due)

    # ---- shares --------------------------------------------------------------------------------

    @statement
    def set_tenant(self, share: TenantShare) -> None:
        if share.tier is not None and share.tier not in self.database.fair.tiers:
            hint = "see `fairlead tenants tiers`"
            raise InvalidInputError(
                f"there is no tier {shown(share.tier)}", tenant=share.tenant_id, hint=hint
            )
        if share == TenantShare(share.tenant_id):
            self.database.fair.tenants.pop(share.tenant_id, None)
        else:
            self.database.fair.tenants[share.tenant_id] = share

    @statement
    def set_tier(self, tier: Tier) -> int:
        self.database.fair.tiers[tier.name] = tier
        return self._tenants_of(tier.name)

    @statement
    def remove_tier(self, name: str) -> bool:
        tenants = self._tenants_of(name)
        if tenants:
            hint = "give them another tier first: `fairlead tenants tiers assign`"
            raise InvalidInputError(f"{tenants} tenants have tier {shown(name)}", hint=hint)
        return self.database.fair.tiers.pop(name, None) is not None

    def _tenants_of(self, tier: str) -> int:
        return sum(share.tier == tier for share in self.database.fair.tenants.values())

    @statement
    def set_group_cap(self, cap: GroupCap) -> None:
        self.database.fair.group_caps[cap.group_key, cap.tenant_id] = cap

    @statement
    def clear_group_cap(self, group_key: str, tenant_id: str | None) -> bool:
        return self.database.fair.group_caps.pop((group_key, tenant_id), None) is not None

    @statement
    def tenant(self, tenant_id: str) -> TenantShare | None:
        return self.database.fair.tenants.get(tenant_id)

    @statement
    def tenants(self, limit: int) -> list[TenantShare]:
        shares = self.database.fair.tenants
        return [shares[name] for name in sorted(shares)][:limit]

    @statement
    def tiers(self) -> Sequence[Tier]:
        tiers = self.database.fair.tiers
        return [tiers[name] for name in sorted(tiers)]

    @statement
    def group_caps(self, limit: int) -> list[GroupCap]:
        caps = self.database.fair.group_caps.values()
        return sorted(caps, key=lambda cap: (cap.group_key, cap.tenant_id or ""))[:limit]

    # ---- reading -------------------------------------------------------------------------------

    @statement
    def turns(self, *, queue: str | None, tenant_id: str | None, limit: int) -> list[TenantTurn]:
        settle(self.database)
        by_tenant: dict[tuple[str, str], list[LaneRow]] = {}
        for key, lane in self.database.fair.lanes.items():
            if queue in (None, key.queue) and tenant_id in (None, key.tenant_id):
                by_tenant.setdefault((key.tenant_id, key.queue), []).append(lane)
        turns = [self._turn_of(*tenant_queue, lanes) for tenant_queue, lanes in by_tenant.items()]
        turns.sort(key=_longest_wait_first)
        return turns[:limit]

    def _turn_of(self, tenant_id: str, queue: str, lanes: list[LaneRow]) -> TenantTurn:
        now, jobs = self.database.now, self.database.jobs.values()
        ready = [lane for lane in lanes if lane.ready]
        waits = [(now - lane.served_at).total_seconds() for lane in ready if lane.served_at is not None]
        rounds = max((self._rounds_behind(lane) for lane in ready), default=0)
        latest = max(lanes, key=lambda lane: (lane.processed > 0, lane.served_at or STARTED))
        rows = [row for row in jobs if (row.tenant_id, row.queue) == (tenant_id, queue)]
        waiting = [row for row in rows if row.state is JobState.AVAILABLE and row.crash_count == 0]
        return TenantTurn(
            tenant_id=tenant_id,
            queue=queue,
            processed=sum(lane.processed for lane in lanes),
            running=min(sum(row.state is JobState.RUNNING for row in rows), MOST_COUNTED),
            waiting=min(len(waiting), MOST_COUNTED),
            ready_lanes=len(ready),
            parked_lanes=len({lane_key(row) for row in waiting} - {lane.key for lane in ready}),
            consecutive=latest.consecutive,
            rounds_without_service=rounds,
            current_priority=current_priority(rounds),
            waits_s=max(waits, default=None),
            weight=weight_of(self.database, tenant_id),
            max_running=cap_of(self.database, tenant_id),
        )

    def _rounds_behind(self, lane: LaneRow) -> int:
        """Return by how many quanta other lanes of its class are ahead, each as before its last turn."""
        fronts: dict[str, int] = {}
        for other in ready_lanes(self.database, lane.key.queue, lane.level):
            fronts.setdefault(other.key.tenant_id, other.position)
        ahead = max(
            position - QUANTUM * stride(weight_of(self.database, tenant_id))
            for tenant_id, position in fronts.items()
        )
        return max(0, ahead - fronts[lane.key.tenant_id]) // (QUANTUM * STRIDE)

    @statement
    def explain(self, job_id: UUID, asker: UUID | None = None) -> Explanation | None:
        return explained(self.database, job_id, asker)

    # ---- handlers ------------------------------------------------------------------------------

    @statement
    def report_kinds(self, queues: Sequence[str], kinds: Sequence[str]) -> None:
        self.database.handled_at |= {(queue, kind): self.database.now for queue in queues for kind in kinds}

    @statement
    def unhandled_kinds(self, limit: int) -> list[UnhandledKind]:
        settle(self.database)
        waiting: Counter[tuple[str, str]] = Counter()
        for row in self.database.jobs.values():
            lane = self.database.fair.lanes.get(lane_key(row))
            ready = lane is not None and lane.ready and row.crash_count == 0
            if ready and is_claimable(row, self.database.now):
                waiting[row.queue, row.kind] += 1
        kinds = [
            UnhandledKind(queue, kind, min(jobs, MOST_COUNTED))
            for (queue, kind), jobs in waiting.items()
            if not is_handled(self.database, queue, kind)
        ]
        return sorted(kinds, key=lambda kind: (-kind.jobs, kind.queue, kind.kind))[:limit]

    # ---- maintenance-----------------------------------------------------------------------------

    @statement
    def raise_floors(self, every_s: float) -> bool:
        """Do nothing: every claim reads all lanes here, so there is no floor."""
        return self._starts_maintenance("floors", every_s)

    @statement
    def age(self, every_s: float) -> int:
        if not self._starts_maintenance("age", every_s):
            return 0
        settle(self.database)
        return sum(age(self.database, lane) for lane in self.database.fair.lanes.values() if lane.ready)

    @statement
    def sweep(self, every_s: float, share: float = 1.0) -> Swept | None:
        """Do nothing: every claim computes readiness here."""
        return Swept() if self._starts_maintenance("sweep", every_s) else None

    def _starts_maintenance(self, name: str, every_s: float) -> bool:
        now, swept_at = self.database.now, self.database.fair.swept_at
        if name in swept_at and now < swept_at[name] + seconds(every_s):
            return False
        swept_at[name] = now
        return True


def _longest_wait_first(turn: TenantTurn) -> tuple[float, str]:
    """Return the key that sorts the longest waiting tenant first; tenants without a ready lane come last."""
    waits_s = -1.0 if turn.waits_s is None else turn.waits_s
    return -waits_s, turn.tenant_id


def _later(first: datetime | None, second: datetime | None) -> datetime | None:
    """Return the later of two ends; None is no end."""
    return None if first is None or second is None else max(first, second)
