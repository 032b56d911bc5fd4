"""Write down the schema as it is today: `python -m tests.migration.keep`."""

from __future__ import annotations

import asyncio

from fairlead.adapters.postgres.database import Database
from tests.migration.test_catalog import CATALOG_FILE
from tests.support.catalog import catalog
from tests.support.databases import migrated_database, settings_of
from tests.support.servers import running_servers


async def keep(admin_url: str) -> None:
    """Migrate a new database and keep its catalog."""
    database = await Database.open(settings_of(await migrated_database(admin_url)))
    CATALOG_FILE.write_text(await catalog(database, to_be_kept=True), "utf-8")
    await database.close()


if __name__ == "__main__":
    with running_servers() as endpoints:
        asyncio.run(keep(endpoints.database_url))
