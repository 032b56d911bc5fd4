"""The second wall between tenants is raised, or lost, while processes are at work (ADR 36)."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg
import pytest

from fairlead.adapters.postgres import database as database_module
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.row_security import RowSecurityLostError
from fairlead.errors import InvalidInputError
from fairlead.events import RowSecurityEnabled, RowSecurityMissing
from tests.support.databases import settings_of
from tests.support.engine import Recorder
from tests.support.notes import sql
from tests.support.rows import run
from tests.support.servers import fresh_database, running_servers
from tests.support.two_tenants import OURS, THEIRS, two_tenants

UNGUARDED = "DROP POLICY tenants_see_theirs ON job"
TENANTS = sql("SELECT DISTINCT tenant_id FROM job ORDER BY 1")
LOST = {
    "ALTER ROLE fairlead_tenant RENAME TO gone": "ALTER ROLE gone RENAME TO fairlead_tenant",
    "REVOKE fairlead_tenant FROM fairlead_engine": "GRANT fairlead_tenant TO fairlead_engine",
}
"""How its role is lost, and what gives it back."""


async def test_a_process_that_was_there_first_has_the_wall_once_it_is_raised(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks again every some minutes; here, each time."""
    monkeypatch.setattr(database_module, "ROW_SECURITY_CHECK_S", 0.0)
    recorder = Recorder()
    database = await Database.open(database_settings)
    await (await two_tenants(database)).close()
    await run(database, UNGUARDED)
    assert not await database.refresh_row_security()
    database.report_row_security(recorder)
    both = await database.for_tenants(OURS).fetch(TENANTS)
    assert both == [(OURS,), (THEIRS,)], "only the statements separate tenants"
    await run(database, "CALL row_security_enable()")
    assert await database.for_tenants(OURS).fetch(TENANTS) == [(OURS,)]
    async with database.for_tenants(OURS).transaction() as transaction:
        assert await transaction.fetch(TENANTS) == [(OURS,)]
    await database.close()
    assert len(recorder.of(RowSecurityMissing)) == len(recorder.of(RowSecurityEnabled)) == 1


async def test_wall_is_not_checked_for_every_statement(database: Database) -> None:
    await run(database, UNGUARDED)
    await database.for_tenants(OURS).fetch(TENANTS)
    assert database.row_security_enabled


@pytest.mark.slow
async def test_a_role_that_is_lost_is_no_fault_of_the_values() -> None:
    """Whoever meets it first is told what to do; the next goes on as a process does that begins now."""
    with running_servers() as cluster:
        owner = settings_of(await fresh_database(cluster.database_url))
        await Migrator(owner).apply()
        admin = await asyncpg.connect(cluster.database_url)
        await admin.execute("CREATE ROLE clerk LOGIN IN ROLE fairlead_engine")
        parts = urlsplit(owner.dsn)
        clerk = parts._replace(netloc=f"clerk@{parts.netloc.rpartition('@')[2]}").geturl()
        database, recorder = await Database.open(settings_of(clerk)), Recorder()
        database.report_row_security(recorder)
        for number, (lose, give_back) in enumerate(LOST.items(), 1):
            assert await database.for_tenants(OURS).fetch(TENANTS) == []
            assert database.row_security_enabled
            await admin.execute(lose)
            with pytest.raises(
                RowSecurityLostError, match=r"fairlead_tenant cannot be taken.*fairlead doctor"
            ):
                await database.for_tenants(OURS).fetch(TENANTS)
            assert await database.for_tenants(OURS).fetch(TENANTS) == []
            assert not database.row_security_enabled
            assert len(recorder.of(RowSecurityMissing)) == number
            await admin.execute(give_back)
            database._refresh_row_security_mono = 0.0  # five minutes later
        await admin.close()
        await database.close()


async def test_values_that_the_database_refuses_are_still_told_as_such(database: Database) -> None:
    with pytest.raises(InvalidInputError):
        await database.for_tenants("a\0b").fetch(TENANTS)
