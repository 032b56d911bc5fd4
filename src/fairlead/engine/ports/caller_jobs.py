"""Jobs stored inside a transaction of the caller's own (Q1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlead.engine.ports.jobs import Enqueued, NewJob


class CallerJobs(Protocol):
    """A store of jobs that uses the caller's connection: jobs exist if and when its transaction commits.

    Both methods return one result for each job, in order.

    Raises:
        InvalidInputError: The connection cannot be used or has no transaction; nothing was sent.
        RefusedError: A queue has too many dead letters of a job's kind.

    Spec: Q10.
    """

    async def store(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store *jobs* through an asynchronous connection."""
        ...

    def store_blocking(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store *jobs* through a blocking connection."""
        ...
