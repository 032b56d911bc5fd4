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
    """A discarded job that needs a person or a policy.

    Attributes:
        lineage_id: The same for all dead letters of one piece of work, through its replays.
        category: The category of the last failure, as are *code*, *reason* and *details*.
        history: The failed attempts, oldest first.
        status: Its state; see `DeadLetterStatus`.
        resolution: How it was closed, with *resolved_by*, *resolved_why* and *resolved_at*. None: it is open.
        replays: How often it was enqueued again.
        replay_job_id: The replay under way; None: none is.
        reauth_started_at: When its tenant was first asked for a new grant.
        first_at: When the job was first discarded; *last_at*: when it was discarded last.
    """

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

    async def get(self, dead_letter_id: UUID) -> DeadLetter | None:
        """Return the dead letter with this id, or None."""
        ...

    async def search(
        self, *, status: str | None, category: str | None, tenant_id: str | None, kind: str | None, limit: int
    ) -> list[DeadLetter]:
        """Return the newest dead letters that match every value; None matches all."""
        ...

    async def find(
        self,
        criteria: DeadLetterFilter,
        *,
        limit: int,
        cursor: UUID | None = None,
        oldest_first: bool = False,
        at_rest: bool = False,
    ) -> list[DeadLetter]:
        """Return a page of matching dead letters.

        Args:
            criteria: What they must match.
            limit: The most entries of the page.
            cursor: The last id of the page before. None: the first page.
            oldest_first: Whether the oldest comes first; else the newest.
            at_rest: Whether to leave out those with a replay under way, or an open job of the same key.
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
        """Set when the entry is due for its next action, unless its job was discarded again.

        Args:
            action_in_s: Seconds until then. None: it waits for an operator.
            last_at: When the job was last discarded, as the caller read it. None: any time.
            reauth_started: Whether to record that the tenant was asked for a new grant.
            notified: Whether to record that the last notice was sent.
        """
        ...

    async def open_count(self, queue: str) -> int:
        """Return how many open dead letters *queue* has."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return open dead letters by category."""
        ...

    async def prune(self, older_than_s: float, bound: int, limit: int) -> int:
        """Delete closed entries, and return how many. Open ones are never deleted.

        Args:
            older_than_s: The age from which they are deleted.
            bound: How many entries of one queue to retain at most, however young.
            limit: The most entries to delete.
        """
        ...
