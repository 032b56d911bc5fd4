"""Fair shares: weights, caps, pauses, and the fairness figures of tenants. Spec: Q6, Q7, Q14."""

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
    """A pause in force.

    Attributes:
        until: When it ends. None: when it is resumed.
        by: The person or job that paused.
        lanes: How many lanes it pauses now.
    """

    scope: Scope
    until: datetime | None
    reason: str
    by: str
    since: datetime
    lanes: int


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A tenant's share of the workers. A value of None: as its tier says, else weight 1 and no cap.

    Attributes:
        weight: How much of the workers' time it gets, relative to other tenants.
        max_running: How many of its jobs may run at the same time.
    """

    tenant_id: str
    tier: str | None = None
    weight: float | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """A named set of defaults for many tenants. *max_running* applies to each tenant by itself."""

    name: str
    weight: float | None = None
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class GroupCap:
    """A limit on the running jobs of a group.

    Attributes:
        tenant_id: The tenant of the group. None: the group's jobs of all tenants are counted together.
        max_running: How many jobs may run at the same time.
    """

    group_key: str
    tenant_id: str | None
    max_running: int


@dataclass(frozen=True, slots=True)
class TenantTurn:
    """The fairness figures of one tenant in one queue. Counts stop at 1,000. Spec: Q6.

    Attributes:
        rounds_without_service: By how many turns the most served tenant of its class is ahead of it.
        current_priority: max(1, 5 - rounds_without_service).
        consecutive: Jobs that it got in a row when it was last served.
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
            worker takes its kind), ``queued`` (its lane is ready, and others are ahead of it), ``lane_not_ready``
            (the next sweep makes its lane ready).
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
    """The repairs of one sweep.

    Attributes:
        opened: Lanes with jobs that no worker would have found.
        parked: Lanes that were parked for a pause.
        woken: Lanes that no pause covers any more.
        deleted: Lanes that had no jobs for long.
    """

    opened: int = 0
    parked: int = 0
    woken: int = 0
    deleted: int = 0


class LaneStore(Protocol):
    """The store of lanes and of settings about them. All times are its own."""

    # ---- pauses --------------------------------------------------------------------------------

    async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
        """Start no job of *scope* until a time, and return how many lanes that pauses.

        Running jobs continue. If the scope is paused already, the later end counts.

        Args:
            scope: The jobs to pause.
            for_s: Seconds until the pause ends. None: it ends with `resume`.
            reason: Shown wherever the pause is listed.
            by: The person or job that pauses.
        """
        ...

    async def hold(self, tenant: str, group: str, for_s: float, *, reason: str) -> None:
        """Start no job of a tenant's group for *for_s* seconds, until its reservation at the gate is due.

        It is independent of pauses. If the group is held already, the earlier end counts, because a
        reservation is due then.
        """
        ...

    async def resume(self, scope: Scope) -> bool:
        """End the pause of *scope* and return whether there was one. Other pauses of a lane remain."""
        ...

    async def due_lanes(self, scope: Scope) -> int:
        """Return how many lanes of *scope* have due jobs, which a pause of it would stop."""
        ...

    async def pauses(self, limit: int) -> list[PauseView]:
        """Return the pauses in force, the newest first."""
        ...

    # ---- shares --------------------------------------------------------------------------------

    async def set_tenant(self, share: TenantShare) -> None:
        """Replace a tenant's settings, from the next claim on. All None: delete them.

        Raises:
            InvalidInputError: There is no such tier.
        """
        ...

    async def set_tier(self, tier: Tier) -> int:
        """Create or change a tier, and return how many tenants it has."""
        ...

    async def remove_tier(self, name: str) -> bool:
        """Delete a tier; return False if there is none.

        Raises:
            InvalidInputError: Tenants have it.
        """
        ...

    async def set_group_cap(self, cap: GroupCap) -> None:
        """Create or change the cap of a group, from the next claim on."""
        ...

    async def clear_group_cap(self, group_key: str, tenant_id: str | None) -> bool: ...

    async def tenant(self, tenant_id: str) -> TenantShare | None: ...

    async def tenants(self, limit: int) -> list[TenantShare]:
        """Return tenants with settings, by name."""
        ...

    async def tiers(self) -> Sequence[Tier]: ...

    async def group_caps(self, limit: int) -> list[GroupCap]:
        """Return the caps of groups."""
        ...

    # ---- views ---------------------------------------------------------------------------------

    async def turns(self, *, queue: str | None, tenant_id: str | None, limit: int) -> list[TenantTurn]:
        """Return fairness figures, the longest waiting tenant first."""
        ...

    async def explain(self, job_id: UUID, asker: UUID | None = None) -> Explanation | None:
        """Return why a job waits, or None if there is no such job.

        Args:
            job_id: The job.
            asker: The caller's session, which runs no jobs and does not count as a worker.
        """
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
        """Raise the floors, the positions at which claims begin to read, past lanes without jobs.

        So claims stay cheap, however many lanes were empty before.

        Args:
            every_s: The least seconds between two moves.

        Returns:
            False if it is not due.
        """
        ...

    async def age(self, every_s: float) -> int:
        """Move ready lanes that waited too long into a more urgent class, if *every_s* has passed since.

        Returns:
            How many lanes were moved.
        """
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
