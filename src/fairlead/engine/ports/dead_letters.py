"""Dead letters: discarded jobs that need a person or a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.jobs import NewJob
from fairlead.engine.ports.values import Json


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that needs a person or a policy."""

    dead_letter_id: UUID
    job_id: UUID
    lineage_id: UUID
    queue: str
    kind: str
    tenant_id: str
    provider: str | None
    connection_id: UUID | None
    group_key: str
    priority: int
    category: str
    code: str
    reason: str
    details: Mapping[str, Json]
    history: Sequence[Mapping[str, Json]]
    args: Mapping[str, Json]
    unique_key: str | None
    status: str
    resolution: str | None
    resolved_by: str | None
    resolution_reason: str | None
    resolved_at: datetime | None
    replays: int
    replay_job_id: UUID | None
    reauth_started_at: datetime | None
    last_notice_at: datetime | None
    token_expires_at: datetime | None
    first_at: datetime
    last_at: datetime
    age_s: float  # database's now - first_at
    regranted: bool = False  # set by `due` only: its connection has a newer grant


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """A selection of dead letters: those that match every field that is set."""

    status: str | None = None
    category: str | None = None
    code: str | None = None
    tenant_id: str | None = None
    provider: str | None = None
    kind: str | None = None
    queue: str | None = None
    older_than_s: float | None = None  # since they were first discarded


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters with the same *value*; *oldest_age_s* is the age of the first."""

    value: str | None
    entries: int
    oldest_age_s: float


class DeadLetterStore(Protocol):
    """The store of dead letters. Spec: Q9-Q11, R19."""

    async def due(self, limit: int) -> list[DeadLetter]:
        """Return dead letters due for an action, oldest first, without those that wait for an operator."""
        ...

    async def get(self, dead_letter_id: UUID) -> DeadLetter | None: ...

    async def search(
        self, *, status: str | None, category: str | None, tenant_id: str | None, kind: str | None, limit: int
    ) -> list[DeadLetter]: ...

    async def find(
        self,
        criteria: DeadLetterFilter,
        *,
        limit: int,
        cursor: UUID | None = None,
        oldest_first: bool = False,
        at_rest: bool = False,
    ) -> list[DeadLetter]:
        """Return a page of matching dead letters, newest or oldest first, that begins behind *cursor*.

        With *at_rest* those are left out that have a replay under way, or an open job of the same key.
        """
        ...

    async def group(self, criteria: DeadLetterFilter, by: str, limit: int) -> list[DeadLetterGroup]:
        """Return matching dead letters, counted *by* a field, in descending order of their number.

        *by* is category, code, tenant_id, provider, kind, queue or status.
        """
        ...

    async def closed_count(self, older_than_s: float) -> int:
        """Return how many dead letters were closed that long ago, which a prune would delete."""
        ...

    async def redrive(
        self, dead_letter_id: UUID, job: NewJob, *, last_at: datetime | None = None, by: str | None = None
    ) -> bool:
        """Enqueue *job* as the dead letter's replay and count it.

        Args:
            by: The author of its resolution once the job succeeds. None: fairlead.
            last_at: When the job last died, as the caller read it. None: any time.

        Returns:
            False if it is closed, already replaying, of another tenant than *job*, or has died again since
            *last_at*.
        """
        ...

    async def resolve(
        self,
        dead_letter_id: UUID,
        *,
        status: str,
        resolution: str,
        by: str,
        reason: str,
        tenant_id: str | None = None,
        last_at: datetime | None = None,
    ) -> str | None:
        """Close an open entry. Abandoning an entry cancels its replay as well.

        Args:
            tenant_id: The tenant that the entry must be of. None: any.
            last_at: When it last died, as the caller read it. None: any time.

        Returns:
            ``closed``; the result of `JobStore.cancel` for a replay that was cancelled; None if the entry is
            not open.

        Spec: R55.
        """
        ...

    async def postpone(
        self,
        dead_letter_id: UUID,
        action_in_s: float | None,
        *,
        last_at: datetime | None = None,
        reauth_started: bool = False,
        notified: bool = False,
    ) -> None:
        """Set the time of the next action and record the last one, unless the entry died again."""
        ...

    async def open_count(self, queue: str) -> int: ...

    async def counts(self) -> Mapping[str, int]:
        """Return open dead letters by category."""
        ...

    async def prune(self, older_than_s: float, bound: int, limit: int) -> int:
        """Delete resolved and abandoned entries that are old, or beyond *bound* a queue; never open ones."""
        ...
