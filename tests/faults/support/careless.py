"""What does not care that the database is away: job stores and words for the ablations of an outage.

drops_results    an outcome that the database does not take is taken for written
believes         a job whose storing is in doubt is taken for stored
loop_ends        a look for work that fails is the last one, and nobody is told
tells_each       each failure of a service is told, not the first of a row
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.engine.base.service import FailureReporter, is_outage
from fairlead.engine.ports import Enqueued, NewJob, Outcome
from fairlead.errors import DependencyUnavailableError


class Around:
    """Everything of *inner* but what a subclass does otherwise."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _DropsResults(Around):
    async def acknowledge(self, outcomes: Sequence[Outcome]) -> set[UUID]:
        try:
            return set(await self._inner.acknowledge(outcomes))
        except DependencyUnavailableError:
            return {outcome.job_id for outcome in outcomes}


class _Unresolving(Around):
    """A database that leaves every doubt to whoever asked."""

    async def resolve_doubt(
        self, work: Callable[[], Awaitable[Any]], *_doubt: object, **_within: object
    ) -> Any:
        return await work()


class _Believes(Around):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        inner._database = inner._intake._database = _Unresolving(inner._database)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        try:
            return list(await self._inner.enqueue(jobs))
        except CommitInDoubtError:
            return [Enqueued(job.job_id, True) for job in jobs]


class _LoopEnds(Around):
    def __getattr__(self, name: str) -> Any:
        attribute = super().__getattr__(name)
        if not name.startswith(("claim", "next_due")):
            return attribute

        async def once(*args: Any) -> Any:
            try:
                return await attribute(*args)
            except DependencyUnavailableError:
                await asyncio.Event().wait()

        return once


def _tell_each() -> None:
    original = FailureReporter.failure

    def failure(self: FailureReporter, error: Exception, *cap_s: float) -> float:
        if self._failures:
            self._emit(self._event(error, is_outage(error)))
        return original(self, error, *cap_s)

    FailureReporter.failure = failure  # type: ignore[assignment,method-assign]


_STORES = {"drops_results": _DropsResults, "believes": _Believes, "loop_ends": _LoopEnds}


def careless(jobs: Any, unsafe: Collection[str]) -> Any:
    """The store *jobs*, careless in each way that is named in *unsafe*."""
    if "tells_each" in unsafe:
        _tell_each()
    for name, store in _STORES.items():
        if name in unsafe:
            jobs = store(jobs)
    return jobs
