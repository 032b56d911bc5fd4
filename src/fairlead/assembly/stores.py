"""What a runtime stands on, for those who tend it: servers, migrations, master keys.

Runtime.open refuses to work on unsound ground; whoever makes it sound reaches it before (`fairlead init`,
`migrate`, `doctor`) or below (`vault`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import EmbeddedServers
from fairlead.adapters.local.collector import tune_collector
from fairlead.adapters.local.core_dumps import disable_core_dumps
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.data_keys import sealed_tables
from fairlead.adapters.postgres.migrate import Migration, Migrator
from fairlead.adapters.postgres.statements import read_statements
from fairlead.adapters.redis import redis_info
from fairlead.adapters.redis.scripts import read_scripts
from fairlead.adapters.vault import MasterKeyring, generate, load_keyring
from fairlead.assembly.settings import Settings
from fairlead.engine.tokens.reencrypt import Reencryptor
from fairlead.policy.calls.classify.rules import builtin_rules

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

__all__ = [
    "Migration",
    "RedisServer",
    "StoreUrls",
    "check_schema",
    "database_settings",
    "disable_core_dumps",
    "master_keyring",
    "migrator",
    "new_master_key",
    "read_texts",
    "redis_server",
    "resealer",
    "resolve_stores",
    "stop_servers",
    "tune_collector",
]


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """Where the stores answer. The versions are known of embedded servers only."""

    database_url: Secret | None
    redis_url: Secret | None
    embedded_postgres: str | None = None
    embedded_valkey: str | None = None


def read_texts() -> None:
    """Read the files of this package that work is done with, once for the process.

    A process without file descriptors could neither write what its jobs came to nor say why calls fail.
    """
    read_statements()
    read_scripts()
    builtin_rules()


@asynccontextmanager
async def resolve_stores(settings: Settings) -> AsyncIterator[StoreUrls]:
    """The stores of *settings*; without a database URL the embedded servers run while the block lasts.

    A store of your own beside embedded ones is taken as it is given. Raises DependencyUnavailableError.
    """
    database, redis = settings.database.url, settings.redis.url
    given_database = Secret(database.get_secret_value()) if database else None
    given_redis = Secret(redis.get_secret_value()) if redis else None
    if given_database is not None:
        yield StoreUrls(given_database, given_redis)
        return
    servers = EmbeddedServers(settings.home / "servers")
    found = await asyncio.to_thread(servers.start)
    try:
        yield StoreUrls(
            Secret(found.database_url),
            given_redis or Secret(found.redis_url),
            embedded_postgres=found.postgres_version,
            embedded_valkey=found.valkey_version,
        )
    finally:
        servers.release()


@dataclass(frozen=True, slots=True)
class RedisServer:
    """Where a Redis answers, and what it is."""

    url: Secret
    server: str


@asynccontextmanager
async def redis_server(settings: Settings) -> AsyncIterator[RedisServer]:
    """The Redis of *settings*, else the embedded Valkey, which runs while the block lasts.

    Raises DependencyUnavailableError where it does not answer.
    """
    given = settings.redis.url
    servers = None if given else EmbeddedServers(settings.home / "servers")
    try:
        if servers is None:
            assert given is not None
            url = Secret(given.get_secret_value())
        else:
            url = Secret((await asyncio.to_thread(servers.start)).redis_url)
        facts = await redis_info(url)
        yield RedisServer(url, f"{facts.product} {facts.version}")
    finally:
        if servers is not None:
            servers.release()


def stop_servers(settings: Settings) -> None:
    """Stop the embedded servers of *settings*, whoever uses them; waits 90 s at most."""
    EmbeddedServers(settings.home / "servers").stop()


def database_settings(settings: Settings, url: Secret) -> DatabaseSettings:
    """How to reach the database at *url*."""
    return DatabaseSettings(
        dsn=url.reveal(),
        schema=settings.database.schema_name,
        max_size=settings.database.pool_size,
        urgent_size=1,
        transaction_pooler=settings.database.pooler,
    )


@asynccontextmanager
async def migrator(settings: Settings) -> AsyncIterator[Migrator]:
    """The migrations of the database of *settings*, whatever state it is in."""
    async with resolve_stores(settings) as found:
        assert found.database_url is not None  # places() gives one or raises
        yield Migrator(database_settings(settings, found.database_url))


async def check_schema(migrator: Migrator, *, apply: bool) -> None:
    """MigrationRequiredError where this version cannot work on the database yet, or with *apply* migrate it.

    In a rolling upgrade its ``post`` migrations are still to come, and it works without them (R38).
    """
    if not apply:
        await migrator.check()
    elif await migrator.plan():
        await migrator.apply()


def master_keyring(settings: Settings) -> MasterKeyring:
    """The master keys of *settings*: KMS hook, setting, file; the usual file where no key is set."""
    given = settings.vault
    usual = settings.home / "master.key"
    file = given.master_key_file or (usual if given.master_key is None and usual.exists() else None)
    key = Secret(given.master_key.get_secret_value()) if given.master_key else None
    return load_keyring(key, file, given.kms)


def new_master_key() -> Secret:
    """A new master key as ``id:key``."""
    return Secret(generate())


def resealer(runtime: Runtime) -> Reencryptor:
    """Key rotation and verification over everything that is sealed."""
    return Reencryptor(
        vault=runtime.vault,
        rotator=runtime.vault,
        keys=runtime.key_store,
        tables=sealed_tables(runtime.database),
        clock=runtime.clock,
        sessions=runtime.sessions,
        own_session=lambda: runtime.heartbeat.session_id,
    )
