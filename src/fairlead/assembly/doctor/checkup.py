"""Checks everything that fairlead depends on, and names each problem with its hint.

The checks are independent, so that one failure hides no other. They change nothing, except that embedded servers
are started. A ``fail`` keeps fairlead from working; a ``warn`` will cause trouble later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.postgres_info import server_facts
from fairlead.assembly.doctor.check import Check
from fairlead.assembly.doctor.data_checks import inspect_handlers, inspect_issuer_clocks, inspect_sealed_data
from fairlead.assembly.doctor.database_checks import (
    clock_check,
    durability_check,
    migrations_check,
    role_check,
    row_security_check,
    snapshot_check,
    version_check,
)
from fairlead.assembly.doctor.host_checks import journal_check, master_key_check, profiles_check
from fairlead.assembly.doctor.server_checks import embedded_check, inspect_redis
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import StoreUrls, database_settings, resolve_stores
from fairlead.errors import DependencyUnavailableError, FairleadError


async def checkup(settings: Settings) -> AsyncIterator[Check]:
    """Run all checks, and yield the result of each."""
    yield await _result_of("profiles", profiles_check(settings))
    yield journal_check(settings.home / "journal")
    yield await _result_of("master key", master_key_check(settings))
    try:
        async with resolve_stores(settings) as stores:
            async for check in _database(settings, stores):
                yield check
            yield await _result_of("redis", inspect_redis(stores.redis_url))
            if stores.embedded_postgres is not None:
                yield embedded_check(stores.embedded_postgres, stores.embedded_valkey)
    except FairleadError as error:
        yield _failed("embedded servers", error)


async def _database(settings: Settings, stores: StoreUrls) -> AsyncIterator[Check]:
    """Check the database. Skip what needs tables if it does not answer or lacks them."""
    assert stores.database_url is not None  # resolve_stores() sets it or raises
    reach = database_settings(settings, stores.database_url)
    try:
        facts = await server_facts(reach)
        pending = await Migrator(reach).plan()
    except FairleadError as error:
        yield _failed("database", error)
        return
    yield version_check(facts)
    yield durability_check(facts)
    yield clock_check(facts)
    yield snapshot_check(facts)
    lacking = [migration.title for migration in pending if migration.phase == "pre"]
    later = [migration.title for migration in pending if migration.phase == "post"]
    yield migrations_check(lacking, later, by_itself=bool(stores.embedded_postgres))
    if not lacking:
        yield role_check(facts)
        yield row_security_check(facts.wall)
        async for check in _stored_data(settings, reach):
            yield check


async def _stored_data(settings: Settings, reach: DatabaseSettings) -> AsyncIterator[Check]:
    try:
        database = await Database.open(reach)
    except FairleadError as error:
        yield _failed("sealed data", error)
        return
    try:
        yield await _result_of("sealed data", inspect_sealed_data(settings, database))
        yield await _result_of("issuer clocks", inspect_issuer_clocks(database))
        yield await _result_of("handlers", inspect_handlers(database))
    finally:
        await database.close()


async def _result_of(name: str, check: Awaitable[Check]) -> Check:
    """Await *check*, and turn an error into a failed check, so that the others run all the same."""
    try:
        return await check
    except FairleadError as error:
        return _failed(name, error)


def _failed(name: str, error: FairleadError) -> Check:
    hint = error.hint
    if hint == DependencyUnavailableError.default_hint:  # it names `fairlead doctor`
        hint = f"check {'REDIS_URL' if name == 'redis' else 'DATABASE_URL'} and that the server runs"
    return Check(name, "fail", error.message.strip(), hint)
