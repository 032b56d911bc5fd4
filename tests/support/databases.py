"""A migrated database per test, copied from one that was migrated once.

Our tables live in a schema that is nobody's default, and `public` is gone: a statement that names a schema,
or a connection that forgets to choose one, fails in every test (STYLE A8).
"""

from __future__ import annotations

import asyncpg

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from tests.support.servers import fresh_database

SCHEMA = "fairlead test"  # a name that must be quoted


def settings_of(url: str, **more: object) -> DatabaseSettings:
    """Return settings for a database that was created here."""
    return DatabaseSettings(dsn=url, schema=SCHEMA, application_name="fairlead-test", **more)  # type: ignore[arg-type]


async def without_public(url: str) -> None:
    """Take the default schema away."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DROP SCHEMA public CASCADE")
    finally:
        await connection.close()


async def migrated_database(admin_url: str) -> str:
    """Make a database with all migrations applied, and give its URL."""
    url = await fresh_database(admin_url)
    await without_public(url)
    await Migrator(settings_of(url)).apply()
    return url
