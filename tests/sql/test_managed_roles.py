"""An installation under the rights that managed services give: no superuser, and often no roles.

The server has another installation, whose roles nobody here may use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.postgres_info import server_facts
from fairlead.adapters.postgres.statements import Statement
from fairlead.assembly.doctor.database_checks import role_check, row_security_check
from fairlead.errors import InvalidConfigError
from tests.sql.test_tenants import a_day_of_work, login
from tests.support.rows import rows
from tests.support.servers import database_name, drop_database, fresh_database
from tests.support.two_tenants import two_tenants

USER = "tenant-of.cloud"
ROLES = "SELECT rolname FROM pg_roles WHERE rolname ~ '^(tenant-of|fairlead_tenant_)'"


@dataclass(frozen=True, slots=True)
class Service:
    """What a service lets its customer's first user do. *grants*: of this database, by an administrator."""

    options: str
    owns_database: bool = True
    grants: tuple[str, ...] = ()

    @property
    def makes_roles(self) -> bool:
        return " CREATEROLE" in f" {self.options}"


SERVICES = {
    "rds": Service("CREATEROLE CREATEDB"),
    "cloud_sql": Service("CREATEROLE CREATEDB", False, ('GRANT CREATE ON DATABASE "{db}" TO "{user}"',)),
    "neon": Service("CREATEROLE CREATEDB BYPASSRLS REPLICATION"),
    "supabase": Service(
        "CREATEROLE CREATEDB BYPASSRLS REPLICATION", False, ('GRANT CREATE ON DATABASE "{db}" TO "{user}"',)
    ),
    "heroku": Service("NOCREATEROLE NOCREATEDB"),
    "a schema only": Service("NOCREATEROLE", False, ('CREATE SCHEMA fairlead AUTHORIZATION "{user}"',)),
}


@dataclass(frozen=True, slots=True)
class Customer:
    """A user of a service, with a database."""

    service: Service
    admin: asyncpg.Connection
    settings: DatabaseSettings


@pytest.fixture
async def admin(servers: Endpoints, migrated_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(servers.database_url)
    yield connection
    await connection.close()


async def customer(
    admin: asyncpg.Connection, servers: Endpoints, service: Service, url: str, user: str
) -> Customer:
    await admin.execute(f'CREATE ROLE "{user}" LOGIN NOSUPERUSER {service.options}')
    there = await asyncpg.connect(url)
    names = {"db": database_name(url), "user": user}
    if service.owns_database:
        await there.execute('ALTER DATABASE "{db}" OWNER TO "{user}"'.format(**names))
    for grant in service.grants:
        await there.execute(grant.format(**names))
    await there.close()
    return Customer(service, admin, DatabaseSettings(dsn=login(url, user)))


@pytest.fixture
async def url(servers: Endpoints, admin: asyncpg.Connection) -> AsyncIterator[str]:
    url = await fresh_database(servers.database_url)
    yield url
    await drop_database(servers.database_url, url)
    for row in await admin.fetch(ROLES):
        await admin.execute(f'DROP ROLE "{row["rolname"]}"')


@pytest.fixture(params=SERVICES)
async def managed(
    request: pytest.FixtureRequest, servers: Endpoints, admin: asyncpg.Connection, url: str
) -> Customer:
    return await customer(admin, servers, SERVICES[request.param], url, USER)


async def test_a_user_of_a_managed_service_installs_and_works(managed: Customer) -> None:
    settings = managed.settings
    await Migrator(settings).apply()
    assert await Migrator(settings).apply() == []
    database = await Database.open(settings)
    assert database.row_security_enabled is managed.service.makes_roles
    await a_day_of_work(database)  # reads and writes what is sealed, too
    await database.close()
    facts = await server_facts(settings)
    assert role_check(facts).status == "ok"
    assert (await Migrator(settings).wall()).stands is managed.service.makes_roles


async def test_without_roles_row_security_is_off_until_the_printed_sql_was_run(
    servers: Endpoints, admin: asyncpg.Connection, url: str
) -> None:
    managed = await customer(admin, servers, SERVICES["heroku"], url, USER)
    await Migrator(managed.settings).apply()
    check = row_security_check((await server_facts(managed.settings)).wall)
    assert check.status == "warn"
    assert check.detail.startswith("row-level security is off: there is no role fairlead_tenant_")
    assert check.hint is not None
    printed, _, then = check.hint.removeprefix("have an administrator run ").rpartition("; then ")
    assert then == "run `fairlead migrate`"
    await admin.execute(printed)
    await Migrator(managed.settings).apply()
    assert row_security_check((await server_facts(managed.settings)).wall).status == "ok"
    database = await Database.open(managed.settings)
    world = await two_tenants(database)
    await world.close()


@pytest.mark.parametrize("schema", [None, "public"])
async def test_a_user_that_may_create_no_schema_is_told_the_sql_for_it(
    servers: Endpoints, admin: asyncpg.Connection, url: str, schema: str | None
) -> None:
    new_customer = await customer(admin, servers, Service("NOCREATEROLE", owns_database=False), url, USER)
    settings = DatabaseSettings(dsn=new_customer.settings.dsn, schema=schema)
    with pytest.raises(InvalidConfigError, match="may not create") as refused:
        await Migrator(settings).apply()
    there = await asyncpg.connect(url)
    assert await there.fetchval("SELECT count(*) FROM pg_class WHERE relname IN ('migration', 'job')") == 0
    await there.execute(refused.value.hint.removeprefix("have an administrator run "))
    await there.close()
    await Migrator(settings).apply()


async def test_a_schema_that_another_user_has_made_is_refused(
    servers: Endpoints, admin: asyncpg.Connection, url: str
) -> None:
    """Its owner may drop our functions, and put others in their place that run with our rights."""
    first = await customer(admin, servers, SERVICES["cloud_sql"], url, USER)
    service = Service("NOCREATEROLE", False, ('GRANT CREATE ON DATABASE "{db}" TO "{user}"',))
    other = await customer(admin, servers, service, url, f"{USER}.2")
    squatter = await asyncpg.connect(other.settings.dsn)
    await squatter.execute(f'CREATE SCHEMA fairlead; GRANT ALL ON SCHEMA fairlead TO "{USER}"')
    await squatter.execute("CREATE SCHEMA bait")
    for table in ("migration", "worker_session", "lane", "job"):  # looks like an installation to go on with
        await squatter.execute(f"CREATE TABLE bait.{table} ()")
    await squatter.close()
    with pytest.raises(InvalidConfigError, match=f'belongs to "{USER}.2"') as refused:
        await Migrator(first.settings).apply()
    there = await asyncpg.connect(url)
    printed, _, _ = refused.value.hint.removeprefix("have an administrator run ").partition(" or set")
    await there.execute(printed)
    await there.close()
    assert await Migrator(first.settings).apply()


async def test_two_installations_of_one_server_share_no_role(
    servers: Endpoints, admin: asyncpg.Connection, url: str
) -> None:
    """Neither in one database nor in two: what one may do is nothing to the other."""
    first = await customer(admin, servers, SERVICES["supabase"], url, USER)
    second = await customer(admin, servers, SERVICES["supabase"], url, f"{USER}.2")
    first_settings = first.settings
    other = DatabaseSettings(dsn=second.settings.dsn, schema="other")
    await Migrator(first_settings).apply()
    await Migrator(other).apply()
    walls = [await Migrator(settings).wall() for settings in (first_settings, other)]
    assert len({wall.tenant for wall in walls}) == len({wall.engine for wall in walls}) == 2
    database = await Database.open(first_settings)
    world = await two_tenants(database)
    stranger = await Database.open(other)
    with pytest.raises(InvalidConfigError, match="permission denied"):
        await stranger.fetch(Statement("test", "SELECT FROM fairlead.job", ()))
    await stranger.close()
    assert await rows(database, "SELECT FROM job") != []
    await world.close()
