"""Jobs stored inside a transaction of the caller's own (Q1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlead.engine.ports.jobs import Enqueued, NewJob


class CallerJobs(Protocol):
    """A store of jobs that uses the caller's connection: jobs exist if and when its transaction commits.

    Both methods raise InvalidInputError, before anything is sent, for a connection that cannot be used or has
    no transaction; and Refused if a queue has too many dead letters of a job's kind. Spec: Q10.
    """

    async def store(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store *jobs* through an asynchronous connection."""
        ...

    def store_blocking(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store *jobs* through a blocking connection."""
        ...
