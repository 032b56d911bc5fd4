"""Random histories: jobs in memory answer as those of PostgreSQL do. The simulation stands on that.

More of them: ``python -m tests.contract.job_histories 10000``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.pool import Database
from fairlead.testing.memory import MemoryJobStore, MemorySessionStore
from fairlead.testing.memory.rows import JobRow
from tests.contract.job_histories import Pair
from tests.contract.pairs import still

HISTORIES = 60
ENOUGH = 30
"""Of so many histories one at least finds each of the mistakes below."""


@pytest.fixture
async def still_one(servers: Endpoints) -> AsyncIterator[Database]:
    async with still(servers.database_url) as database:
        yield database


@pytest.mark.slow
async def test_random_histories_are_the_same_in_memory(still_one: Database) -> None:
    pair = Pair(still_one)
    found = await pair.first_difference(range(HISTORIES))
    if found is not None:
        pytest.fail(await pair.told(*found))


class TakesAnyLease(MemoryJobStore):
    """No fence: whoever brings an outcome is believed."""

    def _leased(self, job_id: UUID, lease_id: int) -> JobRow | None:
        return self.database.jobs.get(job_id)


class CrashesAreFree(MemorySessionStore):
    """A rescue counts for nothing."""

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        row.crash_count = 0
        return super()._rescue_one(row, max_crashes)


@pytest.mark.slow
async def test_a_missing_fence_is_found(still_one: Database) -> None:
    assert await Pair(still_one, jobs=TakesAnyLease).first_difference(range(ENOUGH)) is not None


@pytest.mark.slow
async def test_crashes_that_count_for_nothing_are_found(still_one: Database) -> None:
    assert await Pair(still_one, sessions=CrashesAreFree).first_difference(range(ENOUGH)) is not None
