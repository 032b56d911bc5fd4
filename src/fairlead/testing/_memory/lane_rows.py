"""Lanes, pauses and caps as the tables have them; what operators set has the port's own types."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from fairlead.engine.ports import GroupCap, TenantShare, Tier
from fairlead.policy.jobs.lane import Scope, ScopeKind, is_internal_kind
from fairlead.testing._memory.rows import JobRow


class LaneKey(NamedTuple):
    """The properties that the jobs of one lane share."""

    queue: str
    kind: str
    provider: str | None
    priority: int
    tenant_id: str
    group_key: str


def lane_key(row: JobRow) -> LaneKey:
    """Return the lane of *row*."""
    return LaneKey(row.queue, row.kind, row.provider, row.priority, row.tenant_id, row.group_key)


@dataclass(slots=True)
class LaneRow:
    """A lane and its virtual time among the others of its queue and class.

    *vtime* counts in its own class. While *aged_to* names a more urgent class, *aged_vtime* counts there.
    """

    key: LaneKey
    vtime: int = 0
    ready: bool = False
    served_at: datetime | None = None  # or made ready, whichever was later
    is_capped: bool = False  # only a full cap keeps it waiting, so its wait counts for aging
    aged_to: int | None = None
    aged_vtime: int = 0
    processed: int = 0
    consecutive: int = 0

    @property
    def level(self) -> int:
        """The class in which it is served now."""
        return self.key.priority if self.aged_to is None else self.aged_to

    @property
    def position(self) -> int:
        """Its virtual time in that class."""
        return self.vtime if self.aged_to is None else self.aged_vtime

    def rise_to(self, position: int) -> None:
        """Raise its virtual time in that class to *position* at least."""
        if self.aged_to is None:
            self.vtime = max(self.vtime, position)
        else:
            self.aged_vtime = max(self.aged_vtime, position)


@dataclass(slots=True)
class PauseRow:
    """A pause; *until* None: until it is resumed."""

    scope: Scope
    until: datetime | None
    reason: str
    by: str
    since: datetime


def covers(scope: Scope, lane: LaneKey) -> bool:
    """Return whether *scope* covers *lane*."""
    if is_internal_kind(lane.kind) and scope.kind is not ScopeKind.KIND:
        return False
    match scope.kind:
        case ScopeKind.QUEUE:
            return lane.queue == scope.key
        case ScopeKind.KIND:
            return lane.kind == scope.key
        case ScopeKind.PROVIDER:
            return lane.provider == scope.key
        case ScopeKind.TENANT:
            return lane.tenant_id == scope.key
        case ScopeKind.RATE:
            return (lane.tenant_id, lane.group_key) == (scope.tenant, scope.key)
        case ScopeKind.GROUP:
            return scope.tenant in (None, lane.tenant_id) and lane.group_key == scope.key


@dataclass(slots=True)
class LaneTables:
    """Everything about lanes in one `MemoryDatabase`."""

    lanes: dict[LaneKey, LaneRow] = field(default_factory=dict)
    furthest: dict[tuple[str, int], int] = field(default_factory=dict)  # by queue and class: ever reached
    pauses: dict[Scope, PauseRow] = field(default_factory=dict)
    tenants: dict[str, TenantShare] = field(default_factory=dict)
    tiers: dict[str, Tier] = field(default_factory=dict)
    group_caps: dict[tuple[str, str | None], GroupCap] = field(default_factory=dict)
    swept_at: dict[str, datetime] = field(default_factory=dict)
