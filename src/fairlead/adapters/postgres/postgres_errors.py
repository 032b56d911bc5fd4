"""Translates errors of asyncpg, PostgreSQL and the network to fairlead's own.

- Refused values: the statement changed nothing, and a retry fails alike (InvalidInputError).
- Not done: provably nothing was changed (DependencyUnavailableError and other set-up errors).
- In doubt: the connection broke while a statement ran, so it may have been committed (CommitInDoubtError).
The
  caller reads back what is stored. A COMMIT is never sent again.
"""

from __future__ import annotations

import socket
from typing import NoReturn

import asyncpg

from fairlead.errors import (
    DependencyUnavailableError,
    FairleadError,
    InvalidConfigError,
    InvalidInputError,
    MigrationRequiredError,
)
from fairlead.policy.failures.process_health import HINTS, own_fault_of
from fairlead.policy.text.safe import clipped

DRIVER_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""What asyncpg raises while it runs statements."""
CONNECT_ERRORS = (*DRIVER_ERRORS, ValueError)
"""What it raises on connect; ValueError for a DSN that it cannot read."""

# no such table, column, function, type or schema
_MIGRATE = {"42P01", "42703", "42883", "42704", "3F000", "42P10"}
_DISCONNECTED = ("08", "57P")  # the connection is lost, or the server is shutting down
_DATA = ("22", "23", "54", "44")  # bad values, broken constraints, limits of size and depth
_ROLLED_BACK = {"40001", "40P01", "0A000"}  # by a deadlock, or because a cached plan is out of date
_LOGIN = ("28", "3D", "0P")  # wrong user, password, role or database
_MAX_BYTES = 300
READ_ONLY_HINT = "DATABASE_URL points at a replica or at a former primary: point it at the primary"


class CommitInDoubtError(DependencyUnavailableError):
    """The connection was lost while a statement ran, which may have been committed.

    Stores resolve this by reading back the fence or the id. It is raised to callers only if that fails, too.
    """

    default_hint = "ask again once the database is back: fairlead recognises what it has stored already"


class RolledBackError(DependencyUnavailableError):
    """The server rolled the transaction back for a transient reason. A retry is safe."""


class RowLockedError(DependencyUnavailableError):
    """Another transaction holds a lock on the row. Nothing was changed."""

    default_hint = "end that transaction: pg_stat_activity and pg_blocking_pids() name it"


class ReadOnlyServerError(DependencyUnavailableError):
    """The server accepts no writes: a replica, or a former primary that still runs after a fail-over."""


def no_connection(error: BaseException) -> NoReturn:
    """Raise the translation of an *error* on connect, without a cause that would repeat the DSN."""
    raise not_done(error) from (None if isinstance(error, ValueError) else error)


def not_done(error: BaseException) -> FairleadError:
    """Translate a failure before or outside of any statement: nothing was sent."""
    state = _state(error)
    if isinstance(error, ValueError):  # its text may hold the password
        hint = "write it as postgresql://user@host:5432/database"
        return InvalidConfigError(f"DATABASE_URL cannot be read: {type(error).__name__}", hint=hint)
    if state in _MIGRATE:
        return MigrationRequiredError(_message("the database lacks what this version needs", error))
    if state in _ROLLED_BACK:
        return RolledBackError(_message("the database rolled a transaction back", error))
    if state.startswith(_LOGIN):
        hint = "check user, password and database name of DATABASE_URL"
        return InvalidConfigError(_message("the database refuses this login", error), hint=hint)
    if state == "42501":
        hint = "run GRANT fairlead_engine TO this user, or `fairlead migrate` as the owner of the schema"
        return InvalidConfigError(_message("the database user may not do this", error), hint=hint)
    if state == "08P01":
        hint = (
            "behind a pooler in transaction mode set database.pooler, but run `fairlead migrate` with the "
            "DATABASE_URL of the server itself"
        )
        return InvalidConfigError(_message("the server refuses how we connect", error), hint=hint)
    if state == "25006":
        return ReadOnlyServerError(_message("this database server is read-only", error), hint=READ_ONLY_HINT)
    problem = "ended a statement that took too long" if state == "57014" else "is not available"
    reason = own_fault_of(error)
    return DependencyUnavailableError(
        _message(f"the database {problem}", error), hint=_hint(error), reason=reason
    )


def _hint(error: BaseException) -> str | None:
    """Return the hint for an unavailable database, or None for the default one."""
    if isinstance(error, socket.gaierror):
        return "check the host name of DATABASE_URL, and the name servers of this host"
    if (fault := own_fault_of(error)) is not None:
        return HINTS[fault]
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return "raise max_connections, or lower database.pool_size (of each process): see pg_stat_activity"
    return None


def of_statement(error: Exception, *, connected: bool) -> Exception:
    """Translate the failure of a statement that was sent.

    Errors that only a mistake in this program explains are returned unchanged.

    Args:
        connected: Whether the connection is still usable.
    """
    state = _state(error)
    if isinstance(error, ValueError) or state.startswith(_DATA):  # ValueError: asyncpg could not encode them
        return InvalidInputError(_message("the database refuses these values", error), reason=state or None)
    if not connected or isinstance(error, OSError | TimeoutError) or state.startswith(_DISCONNECTED):
        return CommitInDoubtError(_message("the connection was lost while the database was at work", error))
    if state == "55P03":
        return RowLockedError(_message("another transaction holds a row", error))
    if isinstance(error, asyncpg.PostgresError) and not state.startswith("42"):
        return not_done(error)
    if state in _MIGRATE or state == "42501":
        return not_done(error)
    return error


def _state(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def _message(problem: str, error: BaseException) -> str:
    """Return *problem* with the type of *error*, and the server's text if it holds no values of rows."""
    words = type(error).__name__
    if isinstance(error, asyncpg.PostgresError) and not _state(error).startswith(_DATA):
        words = f"{words}: {error.args[0] if error.args else ''}"
    elif isinstance(error, OSError):
        words = f"{words}: {error.strerror or error}"
    elif _state(error).startswith("23"):
        words = f"{words}: {getattr(error, 'constraint_name', None)}"
    return f"{problem}: {clipped(words, _MAX_BYTES)}"
