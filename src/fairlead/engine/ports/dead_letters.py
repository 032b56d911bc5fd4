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
    resolved_why: str | None
    resolved_at: datetime | None
    replays: int
    replay_job_id: UUID | None
    reauth_started_at: datetime | None
    last_notice_at: datetime | None
    token_expires_at: datetime | None
    first_at: datetime
    last_at: datetime
    age_s: float  # database's now - first_at
    regranted: bool = False  # set by `due` only: its connection was given a new grant after it died


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which entries are meant: those that fit everything that is given."""

    status: str | None = None
    category: str | None = None
    code: str | None = None
    tenant_id: str | None = None
    provider: str | None = None
    kind: str | None = None
    queue: str | None = None
    older_than_s: float | None = None  # since they first died


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Entries that have *value* in common; *oldest_age_s* since the first of them died."""

    value: str | None
    entries: int
    oldest_age_s: float


class DeadLetterStore(Protocol):
    """Entries of discarded jobs and what became of them (Q9-Q11, R19)."""

    async def due(self, limit: int) -> list[DeadLetter]:
        """Entries due for action, oldest first; entries that wait for a person are not among them."""
        ...

    async def get(self, dead_letter_id: UUID) -> DeadLetter | None: ...

    async def search(
        self, *, status: str | None, category: str | None, tenant_id: str | None, kind: str | None, limit: int
    ) -> list[DeadLetter]: ...

    async def find(
        self,
        wanted: DeadLetterFilter,
        *,
        limit: int,
        after: UUID | None = None,
        oldest_first: bool = False,
        at_rest: bool = False,
    ) -> list[DeadLetter]:
        """Return a page of matching entries, newest or oldest first, that begins behind *after*.

        With *at_rest* entries are left out whose work is under way, as a replay or as an open job of their
        key.
        """
        ...

    async def group(self, wanted: DeadLetterFilter, by: str, limit: int) -> list[DeadLetterGroup]:
        """Entries that fit, counted *by* category, code, tenant_id, provider, kind, queue or status.

        The most frequent first.
        """
        ...

    async def closed_count(self, older_than_s: float) -> int:
        """How many entries were closed so long ago: what a prune of them deletes."""
        ...

    async def redrive(
        self, dead_letter_id: UUID, job: NewJob, *, last_at: datetime | None = None, by: str | None = None
    ) -> bool:
        """Enqueue *job* as the entry's replay and count it.

        Args:
            by: The person on whose behalf the entry is resolved once the job succeeds. None: fairlead.
            last_at: When the entry last died, as the caller read it. None: any time.

        Returns:
            False if the entry is closed, already replaying, of another tenant than *job*, or has died again
            since *last_at*.
        """
        ...

    async def resolve(
        self,
        dead_letter_id: UUID,
        *,
        status: str,
        resolution: str,
        by: str,
        why: str,
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
        """Open entries by category."""
        ...

    async def prune(self, older_than_s: float, bound: int, limit: int) -> int:
        """Delete resolved and abandoned entries that are old, or beyond *bound* a queue; never open ones."""
        ...
