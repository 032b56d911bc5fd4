"""A database with a clock that a test sets: the same instants as in memory, to the microsecond.

Its schema has a ``now()`` of its own, which comes before the server's on the search path. Whatever names the
time by a schema, or runs on a search path of its own, still asks the server's clock; statements do not.
"""

from __future__ import annotations

from datetime import datetime

import asyncpg
import pytest

from fairlead.adapters.postgres import installation
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.statements import Statement, statement
from fairlead.testing._memory.database import STARTED
from tests.support.databases import without_public
from tests.support.rows import run
from tests.support.servers import fresh_database

_SCHEMA = "still"
_CLOCK = f"""
CREATE SCHEMA {_SCHEMA};
CREATE TABLE {_SCHEMA}.clock (at timestamptz NOT NULL);
CREATE FUNCTION {_SCHEMA}.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM {_SCHEMA}.clock';
CREATE FUNCTION {_SCHEMA}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT at FROM {_SCHEMA}.clock';
GRANT USAGE ON SCHEMA {_SCHEMA} TO PUBLIC;
GRANT SELECT ON {_SCHEMA}.clock TO PUBLIC;
"""


async def still_database(admin_url: str) -> DatabaseSettings:
    """Yield a migrated database with its clock at `STARTED`."""
    url = await fresh_database(admin_url)
    await without_public(url)
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_CLOCK)
        await connection.execute(f"INSERT INTO {_SCHEMA}.clock VALUES ($1)", STARTED)
    finally:
        await connection.close()
    settings = DatabaseSettings(
        dsn=url,
        schema=_SCHEMA,
        search_path=f"{_SCHEMA}, pg_catalog",
        application_name="fairlead-test",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installation, "statement", _with_clock_first)
        await Migrator(settings).apply()
    return settings


def _with_clock_first(name: str) -> Statement:
    """Return the statement *name*; functions and defaults are created with the clock before the server's."""
    if name == "migration_path":
        path = f"{_SCHEMA}, pg_catalog, pg_temp"
        return Statement(name, f"SELECT set_config('search_path', '{path}', true)", ())
    return statement(name)


async def set_clock(database: Database, at: datetime) -> None:
    """Set the clock to *at*."""
    await run(database, f"UPDATE {_SCHEMA}.clock SET at = $1", at)
