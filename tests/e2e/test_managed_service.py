"""The commands on a database whose user may make no roles, as managed services give it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

from fairlead.adapters.embedded import Endpoints
from tests.support.cli import Shell
from tests.support.servers import database_name, drop_database, fresh_database

USER = "renter"


@pytest.fixture
async def rented(bare: Shell, servers: Endpoints, migrated_url: str) -> AsyncIterator[Shell]:
    """On an empty database that `renter` owns, on a server whose roles belong to somebody else."""
    url = await fresh_database(servers.database_url)
    admin = await asyncpg.connect(servers.database_url)
    await admin.execute(f"CREATE ROLE {USER} LOGIN NOCREATEROLE")
    await admin.execute(f'ALTER DATABASE "{database_name(url)}" OWNER TO {USER}')
    parts = urlsplit(url)
    bare.environ["DATABASE_URL"] = parts._replace(netloc=f"{USER}@{parts.netloc.rpartition('@')[2]}").geturl()
    yield bare
    await drop_database(servers.database_url, url)
    await admin.execute(f"DROP ROLE {USER}")
    await admin.close()


async def test_without_roles_migrate_doctor_and_status_say_that_row_security_is_off(rented: Shell) -> None:
    migrated = await rented("migrate")
    assert migrated.code == 0
    assert "row-level security is off" in migrated.err
    assert "have an administrator run CREATE ROLE fairlead_tenant_" in migrated.err

    checks = {row["check"]: row for row in (await rented("doctor", "--json")).rows}
    assert (checks["row security"]["status"], checks["database role"]["status"]) == ("warn", "ok")
    assert checks["row security"]["detail"].startswith("row-level security is off")

    status = await rented("status", "--json")
    assert status.record["row_security"] == "off"
    assert not any("row security" in problem for problem in status.record["problems"])  # roles are optional
    assert "row-level security is off" in (await rented("status")).err
