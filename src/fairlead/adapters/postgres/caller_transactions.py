"""Jobs stored through connections of the caller's own: see fairlead.engine.ports.CallerJobs.

All ways lead through the SQL function fairlead_enqueue, whose file states what it locks and which roles may call
it. The connection may be of asyncpg, psycopg, psycopg2 or Django, and may look for tables wherever
it likes: the function is called by its full name, with one parameter that every driver can carry, a text.
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
    """See the port.

    Args:
        schema: The schema of fairlead's tables.
        bound: The number of open dead letters of one kind in a queue at which new work of it is refused.
    """

    def __init__(self, *, schema: str, bound: int) -> None:
        call = statement("caller_enqueue")
        self._takes = call.params
        self._numbered = qualified(call.text, schema)
        # The drivers of DB-API count by position: each parameter stands once in the statement, in its order.
        marks = self._numbered.replace("%", "%%")
        for number in range(1, len(call.params) + 1):
            marks = marks.replace(f"${number}", "%s")
        self._marked = marks
        self._values = {"bound": bound}

    async def store(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        given: Any = connection
        if hasattr(given, "fetchrow") and hasattr(given, "is_in_transaction"):  # asyncpg
            _check_begun(given.is_in_transaction())
            work = given.fetch(self._numbered, *self._args(jobs))
        elif _is_psycopg(given) and inspect.iscoroutinefunction(type(given).execute):
            _check_begun(_psycopg_has_begun(given))
            work = self._by_cursor(given, jobs)
        else:
            raise _no_connection(given, "an asyncpg connection or a psycopg AsyncConnection")
        try:
            return _enqueued(jobs, await work)
        except Exception as error:
            raise _judged(error, jobs[0]) from error

    def store_blocking(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        given: Any = connection
        if hasattr(given, "in_atomic_block") and getattr(given, "vendor", None) == "postgresql":  # Django
            _check_begun(given.in_atomic_block or not given.get_autocommit())
        elif _is_psycopg(given) and not inspect.iscoroutinefunction(getattr(type(given), "execute", None)):
            _check_begun(_psycopg_has_begun(given))
        else:
            raise _no_connection(given, "a psycopg Connection or Django's connection to PostgreSQL")
        try:
            with _cursor(given) as cursor:
                cursor.execute(self._marked, self._args(jobs))
                return _enqueued(jobs, cursor.fetchall())
        except Exception as error:
            raise _judged(error, jobs[0]) from error

    async def _by_cursor(self, connection: Any, jobs: Sequence[NewJob]) -> list[Any]:
        async with _cursor(connection) as cursor:
            await cursor.execute(self._marked, self._args(jobs))
            found: list[Any] = await cursor.fetchall()
            return found

    def _args(self, jobs: Sequence[NewJob]) -> list[object]:
        values = self._values | {"jobs": json.dumps([_fields(job) for job in jobs], ensure_ascii=False)}
        return [values[name] for name in self._takes]


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
        UUID(str(asked)): (UUID(str(job_id)), key_state) for asked, job_id, key_state in map(tuple, rows)
    }
    return [
        Enqueued(stored[job.job_id][0], stored[job.job_id][0] == job.job_id, stored[job.job_id][1])
        for job in jobs
    ]


# ---- connections -------------------------------------------------------------------------------


def _is_psycopg(connection: Any) -> bool:
    """A connection of psycopg, version 2 or 3."""
    return hasattr(connection, "cursor") and hasattr(getattr(connection, "info", None), "transaction_status")


def _psycopg_has_begun(connection: Any) -> bool:
    """Without autocommit the first statement begins a transaction, so an idle connection will do."""
    idle = int(connection.info.transaction_status) == 0
    return not idle or not connection.autocommit


def _cursor(connection: Any) -> Any:
    """A cursor that gives tuples, whatever the connection's own rows are."""
    if hasattr(connection, "row_factory"):  # psycopg 3
        return connection.cursor(row_factory=lambda cursor: tuple)
    return connection.cursor()


def _check_begun(begun: bool) -> None:
    if not begun:
        hint = "begin one (transaction(), atomic()), or leave the connection out: then it is stored at once"
        raise InvalidInputError("this connection is in no transaction", hint=hint)


def _no_connection(given: object, wanted: str) -> InvalidInputError:
    what = f"a {type(given).__module__}.{type(given).__name__} is not {wanted}"
    hint = "blocking connections go to fl.sync, others to fl; of SQLAlchemy's give the driver_connection"
    return InvalidInputError(what, hint=hint)


# ---- errors ------------------------------------------------------------------------------------


def _judged(error: Exception, job: NewJob) -> Exception:
    """In our words where it is our matter; else as it is, since the transaction is the caller's to repeat."""
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
