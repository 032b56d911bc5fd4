"""Fair shares: lanes, weights, pause scopes, and the longest wait. Spec: Q6, R16.

A lane holds the jobs of one (queue, kind, provider, priority, tenant, group): all that can be blocked or
served as one. Lanes take turns by virtual time: a job of a lane moves it on by its stride, 1000 / weight. All
lanes of a tenant together get what one would get: in PostgreSQL they share one entry, in memory each job is
charged to all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.job import MAX_GROUP_KEY_BYTES
from fairlead.policy.text.names import check_label, check_name, check_tenant, shown
from fairlead.policy.text.names import connection_group as connection_group  # noqa: PLC0414 (part of the lanes' vocabulary)
from fairlead.policy.text.number import number_of

QUANTUM = 3
"""Jobs of one tenant in a row while others wait."""
STRIDE = 1000
"""By how much a job of weight 1 moves its lane on."""
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000.0
MAX_CAP = 1_000_000
INTERNAL_PREFIXES = frozenset({"token", "event", "dead_letter"})
"""The prefixes of internal kinds, up to their first dot; and one without a dot."""
CLEAN_UP = "clean_up"
LONGEST_WAIT_S = 300.0
"""The longest wait of a lane: by then it has moved into the first class. Spec: Q6."""


class ScopeKind(StrEnum):
    """The kinds of things that can be paused."""

    QUEUE = "queue"
    KIND = "kind"
    TENANT = "tenant"
    PROVIDER = "provider"
    GROUP = "group"
    RATE = "rate"
    """A group of one tenant, until its reservation at the provider's limits. Written by the gate only."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A thing that can be paused. A group belongs to *tenant*, or with None to all tenants together."""

    kind: ScopeKind
    key: str
    tenant: str | None = None

    def __post_init__(self) -> None:
        match self.kind:
            case ScopeKind.TENANT:
                check_tenant(self.key)
            case ScopeKind.GROUP | ScopeKind.RATE:
                check_label("group", self.key, MAX_GROUP_KEY_BYTES, tenant=self.tenant)
            case _:
                check_name(self.kind.value, self.key)
        if self.tenant is not None:
            check_tenant(self.tenant)
            if self.kind not in (ScopeKind.GROUP, ScopeKind.RATE):
                hint = "leave the tenant out, or pause the tenant, or one of its groups"
                raise InvalidInputError(f"a {self.kind} is no tenant's own", tenant=self.tenant, hint=hint)

    @property
    def owner(self) -> str | None:
        """The tenant that it belongs to entirely; None if it covers several."""
        return self.key if self.kind is ScopeKind.TENANT else self.tenant

    def __str__(self) -> str:
        of = f" of tenant {shown(self.tenant)}" if self.tenant is not None else ""
        return f"{self.kind} {shown(self.key)}{of}"


def check_weight(weight: object) -> float:
    """Return *weight* if it is 0.001 to 1000 (1 is usual).

    Raises:
        InvalidInputError: It is not.
    """
    number = number_of(weight)
    if MIN_WEIGHT <= number <= MAX_WEIGHT:  # NaN fails both comparisons
        return float(number)
    text = weight if isinstance(weight, int | float) else shown(weight)
    raise InvalidInputError(
        f"{text} is no weight", hint=f"give {MIN_WEIGHT:g} to {MAX_WEIGHT:g}; 1 is the usual"
    )


def check_cap(max_running: object) -> int:
    """Return *max_running* if it is a cap of 1 to 1,000,000 running jobs.

    Raises:
        InvalidInputError: It is not.
    """
    if isinstance(max_running, int) and not isinstance(max_running, bool) and 1 <= max_running <= MAX_CAP:
        return max_running
    text = max_running if isinstance(max_running, int | float) else shown(max_running)
    hint = f"give 1 to {MAX_CAP}; to let nothing run, pause instead"
    raise InvalidInputError(f"{text} is no cap on running jobs", hint=hint)


def stride(weight: float) -> int:
    """Return by how much each job moves a lane of *weight* on.

    >>> stride(1.0), stride(3.0), stride(1000.0)
    (1000, 333, 1)
    """
    return max(1, round(STRIDE / weight))


def is_internal_kind(kind: str) -> bool:
    """Return whether *kind* is an internal one, which only a pause of that kind stops, and no cap counts.

    So tokens are refreshed and customers notified while their other jobs wait.

    >>> [is_internal_kind(kind) for kind in ("token.refresh", "clean_up", "token", "orders.sync")]
    [True, True, False, False]
    """
    family, dot, _ = kind.partition(".")
    return (bool(dot) and family in INTERNAL_PREFIXES) or kind == CLEAN_UP


class HasTenant(Protocol):
    """The part of a job that decides the order of starting."""

    @property
    def tenant_id(self) -> str: ...


J = TypeVar("J", bound=HasTenant)


def interleave_tenants(jobs: Sequence[J], quantum: int = QUANTUM) -> list[J]:
    """Return *jobs* in their order, but at most *quantum* of a tenant in a row while other tenants wait.

    A job moves forward only past those that would be one too many.
    """
    if not _crowded(jobs, quantum):
        return list(jobs)
    waiting: deque[J] = deque()
    started: list[J] = []
    in_a_row = 0

    def start(job: J) -> None:
        nonlocal in_a_row
        in_a_row = in_a_row + 1 if started and started[-1].tenant_id == job.tenant_id else 1
        started.append(job)

    for job in jobs:
        behind = bool(waiting) and job.tenant_id == waiting[0].tenant_id
        if behind or _too_many(started, job, in_a_row, quantum):
            waiting.append(job)
            continue
        start(job)
        while waiting and not _too_many(started, waiting[0], in_a_row, quantum):
            start(waiting.popleft())
    return [*started, *waiting]


def _crowded(jobs: Sequence[HasTenant], quantum: int) -> bool:
    tenant_id, in_a_row = None, 0
    for job in jobs:
        if job.tenant_id != tenant_id:
            tenant_id, in_a_row = job.tenant_id, 0
        in_a_row += 1
        if in_a_row > quantum:
            return True
    return False


def _too_many(started: Sequence[J], job: J, in_a_row: int, quantum: int) -> bool:
    return bool(started) and started[-1].tenant_id == job.tenant_id and in_a_row >= quantum


def current_priority(rounds_without_service: int) -> int:
    """Return the gauge of a tenant's need: 5 when just served, 1 after four rounds without service. Spec: Q6.

    >>> [current_priority(rounds) for rounds in (0, 1, 4, 9)]
    [5, 4, 1, 1]
    """
    return max(1, 5 - rounds_without_service)
