"""Stores jobs through a connection of the caller: see fairlead.engine.ports.CallerJobs.

Every call goes through the SQL function fairlead_enqueue. Its file states its locks and the roles that may
call it. The connection may be of asyncpg, psycopg, psycopg2 or Django, with any search_path: the function is
called by its qualified name. Its one parameter is a text, which every driver can send.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres.qualified import qualified
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.ports import Enqueued, NewJob
from fairlead.errors import InvalidConfigError, InvalidInputError, MigrationRequiredError, RefusedError
from fairlead.policy.reasons.job_reasons import DEAD_LETTERS_FULL
from fairlead.policy.text.safe import clipped

FULL = "53400"
RETRY_AFTER_S = 60.0

_MISSING = {"42883", "3F000", "42P01", "42704"}
_MAX_WORDS = 300


class PostgresCallerJobs:
    """The CallerJobs port on PostgreSQL.

    Args:
        schema: The schema of fairlead's tables.
        bound: The number of open dead letters of one kind in a queue at which new work of it is refused.
    """

    def __init__(self, *, schema: str, bound: int) -> None:
        call = statement("caller_enqueue")
        self._params = call.params
        self._dollar_text = qualified(call.text, schema)
        # DB-API drivers bind by position: the statement has each parameter once, in order.
        percent_text = self._dollar_text.replace("%", "%%")
        for number in range(1, len(call.params) + 1):
            percent_text = percent_text.replace(f"${number}", "%s")
        self._percent_text = percent_text
        self._values = {"bound": bound}

    async def store(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        target: Any = connection
        if hasattr(target, "fetchrow") and hasattr(target, "is_in_transaction"):  # asyncpg
            _check_in_transaction(target.is_in_transaction())
            work = target.fetch(self._dollar_text, *self._args(jobs))
        elif _is_psycopg(target) and inspect.iscoroutinefunction(type(target).execute):
            _check_in_transaction(_psycopg_in_transaction(target))
            work = self._by_cursor(target, jobs)
        else:
            raise _wrong_connection(target, "an asyncpg connection or a psycopg AsyncConnection")
        try:
            return _enqueued(jobs, await work)
        except Exception as error:
            raise _translated(error, jobs[0]) from error

    def store_blocking(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        target: Any = connection
        if hasattr(target, "in_atomic_block") and getattr(target, "vendor", None) == "postgresql":  # Django
            _check_in_transaction(target.in_atomic_block or not target.get_autocommit())
        elif _is_psycopg(target) and not inspect.iscoroutinefunction(getattr(type(target), "execute", None)):
            _check_in_transaction(_psycopg_in_transaction(target))
        else:
            raise _wrong_connection(target, "a psycopg Connection or Django's connection to PostgreSQL")
        try:
            with _cursor(target) as cursor:
                cursor.execute(self._percent_text, self._args(jobs))
                return _enqueued(jobs, cursor.fetchall())
        except Exception as error:
            raise _translated(error, jobs[0]) from error

    async def _by_cursor(self, connection: Any, jobs: Sequence[NewJob]) -> list[Any]:
        async with _cursor(connection) as cursor:
            await cursor.execute(self._percent_text, self._args(jobs))
            rows: list[Any] = await cursor.fetchall()
            return rows

    def _args(self, jobs: Sequence[NewJob]) -> list[object]:
        values = self._values | {"jobs": json.dumps([_fields(job) for job in jobs], ensure_ascii=False)}
        return [values[name] for name in self._params]


_SAME = [
    field.name
    for field in fields(NewJob)
    if field.name not in ("job_id", "tenant_id", "replay_of", "args_json")
]
"""Parameters of fairlead_enqueue that have the names of a job's fields."""


def _fields(job: NewJob) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in _SAME}
    return values | {"job_id": str(job.job_id), "tenant": job.tenant_id}


def _enqueued(jobs: Sequence[NewJob], rows: Iterable[Any]) -> list[Enqueued]:
    stored = {
        UUID(str(asked_id)): (UUID(str(job_id)), key_state)
        for asked_id, job_id, key_state in map(tuple, rows)
    }
    return [
        Enqueued(stored[job.job_id][0], stored[job.job_id][0] == job.job_id, stored[job.job_id][1])
        for job in jobs
    ]


# ---- connections -------------------------------------------------------------------------------


def _is_psycopg(connection: Any) -> bool:
    """Return whether *connection* is of psycopg, version 2 or 3."""
    return hasattr(connection, "cursor") and hasattr(getattr(connection, "info", None), "transaction_status")


def _psycopg_in_transaction(connection: Any) -> bool:
    """Return whether the next statement runs in a transaction.

    Without autocommit the first statement begins one, so an idle connection qualifies.
    """
    idle = int(connection.info.transaction_status) == 0
    return not idle or not connection.autocommit


def _cursor(connection: Any) -> Any:
    """Return a cursor that yields tuples, whatever row type the connection is set to."""
    if hasattr(connection, "row_factory"):  # psycopg 3
        return connection.cursor(row_factory=lambda cursor: tuple)
    return connection.cursor()


def _check_in_transaction(in_transaction: bool) -> None:
    if not in_transaction:
        hint = "begin one (transaction(), atomic()), or leave the connection out: then it is stored at once"
        raise InvalidInputError("this connection is in no transaction", hint=hint)


def _wrong_connection(connection: object, expected: str) -> InvalidInputError:
    message = f"a {type(connection).__module__}.{type(connection).__name__} is not {expected}"
    hint = "blocking connections go to fl.sync, others to fl; of SQLAlchemy's give the driver_connection"
    return InvalidInputError(message, hint=hint)


# ---- errors ------------------------------------------------------------------------------------


def _translated(error: Exception, job: NewJob) -> Exception:
    """Return the FairleadError for *error*, or *error* itself if the caller has to handle it."""
    cause: Any = error if getattr(error, "sqlstate", None) else (error.__cause__ or error)
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or ""
    words = clipped(str(cause).partition("\n")[0], _MAX_WORDS)
    if state == FULL:
        return RefusedError(
            words,
            tenant=job.tenant_id,
            provider=job.provider,
            hint="heal the cause, then `fairlead dlq redrive`, `resolve` or `abandon`",
            retry_after_s=RETRY_AFTER_S,
            reason=DEAD_LETTERS_FULL.code,
        )
    if state in _MISSING:
        hint = (
            "it must lead to fairlead's database; name the schema there in the setting database.schema_name"
        )
        return MigrationRequiredError(f"this connection finds no fairlead_enqueue: {words}", hint=hint)
    if state == "42501":
        hint = "GRANT USAGE ON SCHEMA ..., and EXECUTE ON FUNCTION fairlead_enqueue, to this database user"
        return InvalidConfigError(
            f"this connection may not enqueue: {words}", tenant=job.tenant_id, hint=hint
        )
    if state == "22023":
        return InvalidInputError(
            f"the database refuses this job: {words}", tenant=job.tenant_id, reason=state
        )
    return error
