"""The servers, the database schema and the master keys that a runtime needs, for the commands that set them up.

Runtime.open raises an error if one of them is missing or wrong. The commands that create or repair them
(`fairlead init`, `migrate`, `doctor`, `vault`) therefore reach them without a Runtime.
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
    "reencryptor",
    "resolve_stores",
    "stop_servers",
    "tune_collector",
]


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """The URLs of the stores; None: there is no such store.

    Attributes:
        embedded_postgres: The version of the embedded server. None: it is not used.
        embedded_valkey: Likewise.
    """

    database_url: Secret | None
    redis_url: Secret | None
    embedded_postgres: str | None = None
    embedded_valkey: str | None = None


def read_texts() -> None:
    """Read the SQL, Lua and rule files of this package into memory, once for the process.

    If they were read on first use, a process that has run out of file descriptors could neither store the
    outcomes of its jobs nor classify failed calls.
    """
    read_statements()
    read_scripts()
    builtin_rules()


@asynccontextmanager
async def resolve_stores(settings: Settings) -> AsyncIterator[StoreUrls]:
    """Yield the URLs of the stores; without a database URL the embedded servers run during the block.

    With a database URL and no Redis URL there is no Redis. A Redis URL without a database URL replaces the
    embedded Valkey.

    Raises:
        DependencyUnavailableError: The embedded servers cannot run.
    """
    database, redis = settings.database.url, settings.redis.url
    redis_url = Secret(redis.get_secret_value()) if redis else None
    if database is not None:
        yield StoreUrls(Secret(database.get_secret_value()), redis_url)
        return
    servers = EmbeddedServers(settings.home / "servers")
    endpoints = await asyncio.to_thread(servers.start)
    try:
        yield StoreUrls(
            Secret(endpoints.database_url),
            redis_url or Secret(endpoints.redis_url),
            embedded_postgres=endpoints.postgres_version,
            embedded_valkey=endpoints.valkey_version,
        )
    finally:
        servers.release()


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A Redis or Valkey server.

    Attributes:
        server: Its product and version, such as "Valkey 9.1.2".
    """

    url: Secret
    server: str


@asynccontextmanager
async def redis_server(settings: Settings) -> AsyncIterator[RedisServer]:
    """Yield the Redis of *settings*; without a URL the embedded Valkey runs during the block.

    Raises:
        DependencyUnavailableError: The server does not answer.
    """
    configured = settings.redis.url
    servers = None if configured else EmbeddedServers(settings.home / "servers")
    try:
        if servers is None:
            assert configured is not None
            url = Secret(configured.get_secret_value())
        else:
            url = Secret((await asyncio.to_thread(servers.start)).redis_url)
        facts = await redis_info(url)
        yield RedisServer(url, f"{facts.product} {facts.version}")
    finally:
        if servers is not None:
            servers.release()


def stop_servers(settings: Settings) -> None:
    """Stop the embedded servers of *settings*, even if other processes use them; wait 90 s at most."""
    EmbeddedServers(settings.home / "servers").stop()


def database_settings(settings: Settings, url: Secret) -> DatabaseSettings:
    """Return the settings of the connections to the database at *url*."""
    return DatabaseSettings(
        dsn=url.reveal(),
        schema=settings.database.schema_name,
        max_size=settings.database.pool_size,
        urgent_size=1,
        transaction_pooler=settings.database.pooler,
    )


@asynccontextmanager
async def migrator(settings: Settings) -> AsyncIterator[Migrator]:
    """Yield the migrator of the database of *settings*, without a check of its schema."""
    async with resolve_stores(settings) as urls:
        assert urls.database_url is not None  # resolve_stores() yields one or raises
        yield Migrator(database_settings(settings, urls.database_url))


async def check_schema(migrator: Migrator, *, apply: bool) -> None:
    """Check that this version can work on the database, or with *apply* migrate it.

    The ``post`` migrations, which end a rolling upgrade, may still be missing. Spec: R38.

    Raises:
        MigrationRequiredError: Migrations that this version needs are missing, and *apply* is not set.
    """
    if not apply:
        await migrator.check()
    elif await migrator.plan():
        await migrator.apply()


def master_keyring(settings: Settings) -> MasterKeyring:
    """Return the master keys of *settings*: of the KMS hook, the setting or the file.

    If no key is set, the file ``master.key`` in the home folder is used if it exists.
    """
    vault = settings.vault
    default_file = settings.home / "master.key"
    use_default = vault.master_key is None and default_file.exists()
    file = vault.master_key_file or (default_file if use_default else None)
    key = Secret(vault.master_key.get_secret_value()) if vault.master_key else None
    return load_keyring(key, file, vault.kms)


def new_master_key() -> Secret:
    """Generate a master key, as ``id:key``."""
    return Secret(generate())


def reencryptor(runtime: Runtime) -> Reencryptor:
    """Return the rotation and verification of keys for all encrypted records."""
    return Reencryptor(
        vault=runtime.vault,
        rotator=runtime.vault,
        keys=runtime.key_store,
        tables=sealed_tables(runtime.database),
        clock=runtime.clock,
        sessions=runtime.sessions,
        own_session=lambda: runtime.heartbeat.session_id,
    )
