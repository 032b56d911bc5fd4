"""Random histories: jobs in memory answer as those of PostgreSQL do. The simulation stands on that.

More of them: ``python -m tests.contract.job_histories 10000``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.engine.ports import NewJob, Outcome
from fairlead.testing._memory import MemoryJobStore, MemoryScheduleStore, MemorySessionStore
from fairlead.testing._memory.database import statement
from fairlead.testing._memory.rows import JobRow, SessionRow
from tests.contract.job_histories import Pair
from tests.contract.losses import LossyDatabase
from tests.contract.pairs import batches, plain, still

HISTORIES = 300
ENOUGH = 30
"""Of so many histories one at least finds each of the mistakes below."""


@pytest.fixture
async def still_one(servers: Endpoints) -> AsyncIterator[LossyDatabase]:
    async with still(servers.database_url) as database:
        yield database


@pytest.mark.slow
@pytest.mark.parametrize("seeds", batches(HISTORIES), ids=str)
async def test_random_histories_are_the_same_in_memory(still_one: LossyDatabase, seeds: range) -> None:
    pair = Pair(still_one)
    difference = await pair.first_difference(seeds)
    if difference is not None:
        pytest.fail(await pair.told(*difference))


# ---- with one safeguard taken out ------------------------------------------------------------------


class TakesAnyLease(MemoryJobStore):
    """No fence: whoever brings an outcome is believed."""

    def _leased(self, job_id: UUID, lease_id: int) -> JobRow | None:
        return self.database.jobs.get(job_id)


class KeepsWhatItNeverHeard(MemoryJobStore):
    """What a claim took whose answer was lost is nobody's until its process ends."""

    def _hand_back_lost(self) -> None:
        return


class BelievesNoRefusal(MemoryJobStore):
    """An outcome whose answer was lost is refused when it is told again."""

    def _accept(self, outcome: Outcome) -> bool:
        self._in_doubt.clear()
        return super()._accept(outcome)


class CrashesAreFree(MemorySessionStore):
    """A rescue counts for nothing."""

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        row.crash_count = 0
        return super()._rescue_one(row, max_crashes)


class MindsNoGap(MemorySessionStore):
    """Who was silent is lost, though nobody could have been heard."""

    def _is_sure(self, row: SessionRow, since: datetime) -> bool:
        return True


class IsPatient(MemorySessionStore):
    """Silence is no proof of anything."""

    def _declare_lost(self, since: datetime) -> int:
        return 0


class TakesARunTwice(MemoryScheduleStore):
    """No compare-and-set."""

    @statement
    def record_run(
        self, name: str, seen_at: datetime, run_at: datetime, coalesced: int, session_id: UUID, job: NewJob
    ) -> bool:
        row = self.database.schedules.get(name)
        if row is not None:
            seen_at = row.last_run_at
        took: bool = plain(MemoryScheduleStore.record_run)(
            self, name, seen_at, run_at, coalesced, session_id, job
        )
        return took


MISTAKES: list[dict[str, Any]] = [
    {"jobs": TakesAnyLease},
    {"jobs": KeepsWhatItNeverHeard},
    {"jobs": BelievesNoRefusal},
    {"sessions": CrashesAreFree},
    {"sessions": MindsNoGap},
    {"sessions": IsPatient},
    {"schedule_store": TakesARunTwice},
]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: next(iter(mistake.values())).__name__)
async def test_a_mistake_is_found(still_one: LossyDatabase, mistake: dict[str, Any]) -> None:
    assert await Pair(still_one, **mistake).first_difference(range(ENOUGH)) is not None
