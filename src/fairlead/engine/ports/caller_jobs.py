"""Jobs stored inside a transaction of the caller's own (Q1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlead.engine.ports.jobs import Enqueued, NewJob


class CallerJobs(Protocol):
    """Stores jobs through a connection that is not ours: they are there if, and when, its owner commits.

    Both methods raise InvalidInputError for a connection that cannot be used, or is in no transaction, before
    anything is sent; Refused where the dead letters of a queue are full of a job's kind (Q10).
    """

    async def store(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Through an asynchronous connection."""
        ...

    def store_blocking(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Through a blocking one."""
        ...
