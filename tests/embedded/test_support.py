"""The helpers other tests stand on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from fairlead.adapters.embedded import EmbeddedServers
from tests.support.servers import TEST_SETTINGS, database_name, drop_database, fresh_database


@pytest.mark.slow
async def test_databases_come_from_a_template_and_go(root: Path) -> None:
    with EmbeddedServers(root, settings=TEST_SETTINGS) as endpoints:
        admin = endpoints.database_url
        migrated = await fresh_database(admin)
        connection = await asyncpg.connect(migrated)
        await connection.execute("create table job (id int)")
        await connection.close()
        template = database_name(migrated)
        first, second = await asyncio.gather(*(fresh_database(admin, template=template) for _ in range(2)))
        assert first != second
        used = await asyncpg.connect(first)
        await used.execute("insert into job values (1)")
        other = await asyncpg.connect(second)
        assert await other.fetchval("select count(*) from job") == 0
        await other.close()
        await drop_database(admin, first)  # though it is in use
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await asyncpg.connect(first)
        await used.close()
