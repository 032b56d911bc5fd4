"""How to reach the database, how a connection to it is set up, and which servers are refused."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field
from typing import Any

from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.statements import statement
from fairlead.errors import InvalidConfigError

MIN_VERSION = 15
ISOLATION = "read_committed"
DEFAULT_SCHEMA = "fairlead"
ENCODING = "UTF8"
ENCODING_HINT = (
    "run CREATE DATABASE fairlead ENCODING 'UTF8' TEMPLATE template0, and point DATABASE_URL at it"
)

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_STATEMENTS_KEPT = 256
# in seconds, and a count
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPALIVE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_USER_TIMEOUT_MS = 20_000


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """How to reach the database."""

    dsn: str = field(repr=False)
    """``postgresql://user@host:port/database``; a secret where it holds a password."""
    schema: str | None = None
    """The schema of all tables; default ``fairlead``, unless there is an installation in another one."""
    search_path: str = ""
    """The search_path of sessions, as SQL writes it; default that schema alone."""
    application_name: str = "fairlead"
    """Shown in pg_stat_activity; default ``fairlead``."""
    min_size: int = 1
    """Connections kept open; default 1."""
    max_size: int = 8
    """Most connections of this process, one more for LISTEN; default 8."""
    urgent_size: int = 0
    """How many of them are reserved for the heartbeat; default 0: it waits with the others."""
    connect_timeout_s: float = 8.0
    """For one new connection; default 8."""
    acquire_timeout_s: float = 10.0
    """For a free connection, a new one included; default 10."""
    statement_timeout_s: float = 12.0
    """After which the server cancels a statement and rolls it back; default 12."""
    command_timeout_s: float = 15.0
    """After which this process drops a connection that does not answer; default 15."""
    transaction_pooler: bool = False
    """Behind a pooler in transaction mode: nothing prepared, no session settings, no LISTEN; default off."""
    allow_async_commit: bool = False
    """Run although the server may lose acknowledged commits (synchronous_commit = off); default off."""

    @property
    def in_schema(self) -> str:
        """The schema of all tables."""
        return self.schema or DEFAULT_SCHEMA


def connect_options(settings: DatabaseSettings) -> dict[str, Any]:
    """Return the keyword arguments of asyncpg.connect."""
    return {
        "dsn": settings.dsn,
        "timeout": settings.connect_timeout_s,
        "command_timeout": settings.command_timeout_s,
        "statement_cache_size": 0 if settings.transaction_pooler else _STATEMENTS_KEPT,
        "max_cached_statement_lifetime": 0,  # for ever
        "server_settings": _server_settings(settings),
    }


def quoted(identifier: str) -> str:
    """Return *identifier* quoted for SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def named(identifier: str) -> str:
    """Return *identifier*, quoted only if necessary."""
    return identifier if _PLAIN_NAME.fullmatch(identifier) else quoted(identifier)


def _server_settings(settings: DatabaseSettings) -> dict[str, str]:
    named = {"application_name": settings.application_name}
    if settings.transaction_pooler:  # it refuses unknown settings; the roles carry them there
        return named
    return named | {
        "search_path": settings.search_path or quoted(settings.in_schema),
        "default_transaction_isolation": "read committed",
        "statement_timeout": str(round(settings.statement_timeout_s * 1000)),
        # first, to distinguish a lock of another transaction from a slow server
        "lock_timeout": str(round(settings.statement_timeout_s * 1000 * 5 / 6)),
        "idle_in_transaction_session_timeout": str(round(settings.command_timeout_s * 2000)),
        "jit": "off",  # statements are short: compiling one costs more than it saves
        "plan_cache_mode": "force_generic_plan",  # planning each time costs more than running it
        "enable_seqscan": "off",  # a cached plan may have been made while its tables were empty
    }


async def guard_socket(connection: DatabaseConnection) -> None:
    """Set TCP keepalive and user timeout, so that a silent peer is detected. A Unix socket needs neither."""
    transport = getattr(connection, "_transport", None)
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE.items(), ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS)):
        option = getattr(socket, name, None)  # not every system has them all
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def check_encoding(encoding: str) -> None:
    """Raise InvalidConfigError unless a database with this encoding can store every text."""
    if encoding != ENCODING:
        raise InvalidConfigError(
            f"the encoding of the database is {encoding}, which cannot store every text", hint=ENCODING_HINT
        )


async def checked_server(connection: DatabaseConnection, settings: DatabaseSettings) -> None:
    """Raise InvalidConfigError unless version, encoding, durability, isolation and role are as required."""
    check = statement("server_check")
    server = (await connection.fetch(check.text, *check.args(schema=settings.in_schema)))[0]
    if server["version"] < MIN_VERSION * 10_000:
        message = (
            f"PostgreSQL {server['version'] // 10_000} is too old: fairlead needs {MIN_VERSION} or newer"
        )
        raise InvalidConfigError(
            message, hint="upgrade the server, or unset DATABASE_URL to use the embedded one"
        )
    check_encoding(server["encoding"])
    if server["synchronous_commit"] == "off" and not settings.allow_async_commit:
        message = "synchronous_commit is off: the server may lose what it has acknowledged"
        hint = "run ALTER ROLE ... SET synchronous_commit = on, or allow it in the settings"
        raise InvalidConfigError(message, hint=hint)
    if server["isolation"] != "read committed":
        message = f"transactions of this user are {server['isolation']} by default"
        hint = "run ALTER ROLE ... SET default_transaction_isolation = 'read committed'"
        raise InvalidConfigError(message, hint=hint)
    if server["engine"] is False:  # row-level security would show it empty tables
        role = server["engine_role"]
        hint = f"run GRANT {named(role)} TO this user; a NOINHERIT user cannot be used"
        raise InvalidConfigError(f"the database user has not the rights of {role}", hint=hint)
