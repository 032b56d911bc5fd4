"""Rights that an operator has granted outlive a migration."""

from __future__ import annotations

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator, shipped_migrations
from tests.support.rows import rows, run


async def test_roles_keep_the_right_to_enqueue_when_the_function_gets_a_parameter(
    empty: DatabaseSettings,
) -> None:
    migrations = shipped_migrations()
    (changed,) = (number for number, migration in enumerate(migrations) if "unique_while" in migration.name)
    await Migrator(empty, migrations[:changed]).apply()
    database = await Database.open(empty)
    acl = "SELECT proacl::text AS acl FROM pg_proc WHERE proname = 'fairlead_enqueue'"
    await run(database, "CREATE ROLE app_of_upgrade")
    try:
        await run(database, "GRANT EXECUTE ON FUNCTION fairlead_enqueue TO app_of_upgrade WITH GRANT OPTION")
        (kept,) = await rows(database, acl)
        await Migrator(empty, migrations).apply()
        assert await rows(database, acl) == [kept]
    finally:
        await run(database, "DROP OWNED BY app_of_upgrade CASCADE")
        await run(database, "DROP ROLE app_of_upgrade")
        await database.close()
