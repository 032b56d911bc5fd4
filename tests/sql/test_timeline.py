"""A fail-over is seen by the first question after it, however long the next checkpoint takes (R11)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.adapters.postgres.connection_setup import quoted
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.postgres_errors import ReadOnlyServerError
from tests.faults.support.pgpair import Cluster, Pair, migrated_cluster, pair_of
from tests.support.databases import SCHEMA, settings_of

pytestmark = pytest.mark.slow

MUCH = f"CREATE TABLE {quoted(SCHEMA)}.much AS SELECT repeat('x', 500) FROM generate_series(1, 20000)"
OF_CHECKPOINT = "SELECT timeline_id FROM pg_control_checkpoint()"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with migrated_cluster() as cluster:
        yield cluster


@pytest.fixture
async def pair(cluster: Cluster) -> AsyncIterator[Pair]:
    """An asynchronous one, whose stand-by takes its time over checkpoints, as servers at work do."""
    slow = {"checkpoint_timeout": "30min", "max_wal_size": "4GB"}
    async with pair_of(cluster, synchronous=False, settings=slow) as pair:
        yield pair


async def timeline(url: str) -> str:
    database = await Database.open(settings_of(url))
    store = PostgresCredentialStore(database)
    try:
        return await store.timeline()
    finally:
        await store.close()
        await database.close()


async def test_the_first_answer_after_a_promotion_tells_another_timeline(pair: Pair) -> None:
    timeline_before = await timeline(pair.primary.url)
    assert await timeline(pair.primary.url) == timeline_before
    await pair.ask(pair.primary, MUCH)  # what a checkpoint has to write
    await pair.in_step()
    with pytest.raises(ReadOnlyServerError, match="hint: "):
        await timeline(pair.standby.url)
    await pair.promote()
    now = await timeline(pair.standby.url)
    assert await pair.ask(pair.standby, OF_CHECKPOINT) == 1, "the checkpoint was faster: this shows nothing"
    assert now.split("/")[:2] == [timeline_before.split("/")[0], "2"]
