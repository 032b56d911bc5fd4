"""One nursery for all experiments, a stage for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.adapters.postgres.pool import Database
from tests.faults.support.nursery import Nursery
from tests.faults.support.stage import Stage, staged


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
async def stage(nursery: Nursery, database: Database, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(nursery, database, tmp_path) as stage:
        yield stage
