"""Fair shares: weights, caps, pauses, and how each tenant's turn stands (Q6, Q7, Q14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.jobs import JobView
from fairlead.policy.jobs.lane import Scope


@dataclass(frozen=True, slots=True)
class PauseView:
    """A pause in force. *until* None: until somebody resumes it. *lanes*: how many it holds back now."""

    scope: Scope
    until: datetime | None
    reason: str
    by: str
    since: datetime
    lanes: int


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A tenant's settings; None: as its tier says, and where that says nothing weight 1 and no cap."""

    tenant_id: str
    tier: str | None = None
    weight: float | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """A named set of defaults for many tenants. *max_running* holds for each of them by itself."""

    name: str
    weight: float | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class GroupCap:
    """At most *max_running* jobs of a group at once: of *tenant*'s group, or of all tenants' with None."""

    group_key: str
    tenant_id: str | None
    max_running: int


@dataclass(frozen=True, slots=True)
class TenantTurn:
    """How one tenant fares in one queue (Q6). Counts stop at 1,000.

    *rounds_without_service*: how many quanta the most served tenant of its class is ahead of it;
    *current_priority*: max(1, 5 - that); *consecutive*: jobs it got in a row when it was last served.
    """

    tenant_id: str
    queue: str
    processed: int
    running: int
    waiting: int
    ready_lanes: int
    parked_lanes: int
    consecutive: int
    rounds_without_service: int
    current_priority: int
    waits_s: float | None  # since its longest waiting ready lane was last served; None: none is ready
    weight: float
    max_running: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, or how it ended. Spec: Q14.

    Attributes:
        why: One of ``finished``, ``running``, ``not_due``, ``follows`` (it starts after the run that had its
            unique key), ``expired``, ``suspect``, ``paused``, ``capped``, ``no_worker``, ``no_handler`` (no
            worker takes its kind), ``turn`` (its lane is ready, and others are ahead of it), ``unseen`` (the
            next sweep makes its lane ready).
        until: When that ends, if known.
        ahead_in_lane: Jobs ahead of it in its lane, up to 1,000.
        lanes_ahead: Ready lanes of its queue and class ahead of its own, up to 1,000.
    """

    job: JobView
    why: str
    detail: str
    until: datetime | None
    ahead_in_lane: int | None
    lanes_ahead: int | None
    running_on: str | None  # host:pid of the worker
    workers: int  # processes that are alive


@dataclass(frozen=True, slots=True)
class UnhandledKind:
    """A kind with due jobs that no worker takes from its queue. *jobs* is at most 1,000."""

    queue: str
    kind: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep mended: lanes of jobs that nobody would have found, lanes parked for a pause, and lanes
    woken that no pause held any more. *deleted*: lanes without work for long."""

    opened: int = 0
    parked: int = 0
    woken: int = 0
    deleted: int = 0


class LaneStore(Protocol):
    """Lanes belong to the queue's store; what people set about them stands here. All times its own."""

    # ---- pauses --------------------------------------------------------------------------------

    async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
        """Begin nothing of *scope* for *for_s* seconds (None: until resumed); how many lanes that holds.

        What runs goes on. Paused again, the later end counts; a longer pause is never made shorter.
        """
        ...

    async def hold(self, tenant: str, group: str, for_s: float, *, reason: str) -> None:
        """Begin nothing of a tenant's group before its turn at the provider's limits, in *for_s* seconds.

        Beside whatever pauses there are. Held again, the earlier end counts: then somebody has a turn.
        """
        ...

    async def resume(self, scope: Scope) -> bool:
        """End the pause of *scope*; False if there was none. Other pauses that hold a lane stay."""
        ...

    async def due_lanes(self, scope: Scope) -> int:
        """How many lanes of *scope* have work that is due: what a pause of it holds, or would hold."""
        ...

    async def pauses(self, limit: int) -> list[PauseView]:
        """Pauses in force, the newest first."""
        ...

    # ---- shares --------------------------------------------------------------------------------

    async def set_tenant(self, share: TenantShare) -> None:
        """Replace a tenant's settings; they hold from the next claim on. All None: forget them.

        InvalidInputError for a tier that is not there.
        """
        ...

    async def set_tier(self, tier: Tier) -> int:
        """Make or change a tier; how many tenants it has."""
        ...

    async def remove_tier(self, name: str) -> bool:
        """Forget a tier; False if there is none. InvalidInputError while tenants have it."""
        ...

    async def set_group_cap(self, cap: GroupCap) -> None:
        """Make or change the cap of a group; it holds from the next claim on."""
        ...

    async def clear_group_cap(self, group_key: str, tenant_id: str | None) -> bool: ...

    async def tenant(self, tenant_id: str) -> TenantShare | None: ...

    async def tenants(self, limit: int) -> list[TenantShare]:
        """Tenants with settings of their own, by name."""
        ...

    async def tiers(self) -> Sequence[Tier]: ...

    async def group_caps(self, limit: int) -> list[GroupCap]: ...

    # ---- looking -------------------------------------------------------------------------------

    async def turns(self, *, queue: str | None, tenant_id: str | None, limit: int) -> list[TenantTurn]:
        """Fairness figures, who waits longest first."""
        ...

    async def explain(self, job_id: UUID, asker: UUID | None = None) -> Explanation | None:
        """Why a job waits; None if it is not there. *asker*: a session that runs no jobs: no worker."""
        ...

    # ---- handlers ------------------------------------------------------------------------------

    async def report_kinds(self, queues: Sequence[str], kinds: Sequence[str]) -> None:
        """Record that a worker takes *kinds* from *queues*. The record is valid for three minutes."""
        ...

    async def unhandled_kinds(self, limit: int) -> list[UnhandledKind]:
        """Return up to *limit* kinds with due jobs that no worker takes, in descending order of jobs."""
        ...

    # ---- upkeep, once across the fleet by compare-and-set rows (R4) -----------------------------

    async def raise_floors(self, every_s: float) -> bool:
        """Have claims begin to read where the ready lanes are; False: not due."""
        ...

    async def age(self, every_s: float) -> int:
        """Move ready lanes that waited too long into a more urgent class; how many."""
        ...

    async def sweep(self, every_s: float, share: float = 1.0) -> Swept | None:
        """Restore the invariant that the lane of an available job is ready, or parked with a wake time.

        Args:
            every_s: The least number of seconds between two sweeps.
            share: The largest fraction of time that sweeps may take. After a sweep of 2 s the next one is
                due 2 / *share* seconds later, at most an hour later.

        Returns:
            What was repaired, or None where no sweep is due.
        """
        ...
