"""Migrations: plain SQL files, applied in the order of their numbers, each once.

A file is ``migrations/NNNN_name.sql``. Its header says ``-- Phase pre`` (safe while the version before it
still runs: to be applied before the new version starts) or ``-- Phase post`` (only once no older process is
left). ``-- transaction: none`` marks a file of one statement that cannot run inside a transaction: an index
built beside the work, or a CALL that commits step by step and has its own patience with locks. Such an index
waits for every transaction that is older than itself, and keeps nobody waiting meanwhile. What was applied
stands in the table ``migration``, with a checksum: an applied file is never edited.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal, cast

import asyncpg

from fairlead.adapters.postgres.driver import Connection, Row
from fairlead.adapters.postgres.failures import CONNECT_ERRORS, DRIVER_ERRORS, no_connection, of_statement
from fairlead.adapters.postgres.session import (
    ISOLATION,
    DatabaseSettings,
    check_encoding,
    connect_options,
)
from fairlead.adapters.postgres.sqlfiles import Statement, statement
from fairlead.errors import ConfigInvalid, DependencyUnavailable, MigrationNeeded

Phase = Literal["pre", "post"]

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_PHASE = re.compile(r"^-- Phase[ \t]+(pre|post)\b", re.MULTILINE)
_NO_TRANSACTION = re.compile(r"^-- transaction: none$", re.MULTILINE)
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)", re.MULTILINE)
_LOCK_EVERY_S = 0.1
_LOCK_WITHIN_S = 120.0
_APPLY_TIMEOUT_S = 3600.0
_CLOSE_WITHIN_S = 2.0  # what was interrupted is cancelled at the server, too: it would wait on, with our lock
_PATIENCE_MS = 500
"""Of a migration for a table's lock: whoever waits for it makes everybody behind it wait (E10)."""
_PATIENCE_PAUSE_S = 1.0  # then those behind it go first
_LOCK_TIMEOUT = "3s"  # of the first steps, and of a script
_INDEX_PATIENCE_MS = 600_000
"""Of an index that is built beside the work, for transactions that are older: a report, a backup."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. *checksum* is of its text, whatever its line ends."""

    number: int
    name: str
    phase: Phase
    transactional: bool
    text: str
    checksum: str

    @property
    def title(self) -> str:
        """Its file name without the ending."""
        return f"{self.number:04}_{self.name}"

    @property
    def index(self) -> str | None:
        """The index that it builds beside the work. Where that fails, one that is INVALID is left."""
        built = None if self.transactional else _INDEX.search(self.text)
        return None if built is None else built[1]


def read_migration(file_name: str, text: str) -> Migration:
    """The migration of one file; ValueError if name or header break the rules above."""
    named, phase = _FILE.fullmatch(file_name), _PHASE.search(text)
    if named is None or phase is None:
        raise ValueError(f"{file_name}: must be NNNN_name.sql with a line `-- Phase pre` or `-- Phase post`")
    text = text.replace("\r\n", "\n")
    return Migration(
        number=int(named[1]),
        name=named[2],
        phase=cast(Phase, phase[1]),
        transactional=_NO_TRANSACTION.search(text) is None,
        text=text,
        checksum=hashlib.sha256(text.encode()).hexdigest(),
    )


@cache
def shipped_migrations() -> tuple[Migration, ...]:
    """The migrations of this version, in order."""
    folder = resources.files("fairlead.adapters.postgres").joinpath("migrations")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return in_order([read_migration(file.name, file.read_text(encoding="utf-8")) for file in files])


def in_order(migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """*migrations* by number; ValueError unless they are numbered 1, 2, 3, ..."""
    ordered = tuple(sorted(migrations, key=lambda migration: migration.number))
    if [migration.number for migration in ordered] != list(range(1, len(ordered) + 1)):
        raise ValueError(f"not numbered without gaps: {[migration.title for migration in ordered]}")
    return ordered


@dataclass(frozen=True, slots=True)
class _Applied:
    number: int
    name: str
    phase: str
    checksum: str


class Migrator:
    """Brings one schema to the state this version needs. `apply` needs a way that leads past any pooler."""

    def __init__(self, settings: DatabaseSettings, migrations: Sequence[Migration] | None = None) -> None:
        self._settings = settings
        self._migrations = shipped_migrations() if migrations is None else in_order(migrations)

    async def plan(self) -> list[Migration]:
        """What `apply` would do, in order. Raises ConfigInvalid if the database is not ours to migrate."""
        async with self._connected(self._settings) as connection:
            return self._pending(await _applied(connection))

    async def check(self) -> None:
        """MigrationNeeded unless this version can work on the database as it is.

        In a rolling upgrade two versions share a database, so neither our own ``post`` migrations that are
        still to come nor ``pre`` migrations of a later version are an obstacle.
        """
        lacking = [migration.title for migration in await self.plan() if migration.phase == "pre"]
        if lacking:
            raise MigrationNeeded(f"the database lacks {', '.join(lacking)}")

    async def apply(self, upto: Phase = "post") -> list[Migration]:
        """Apply what is pending and give it; with *upto* ``pre`` stop before the first ``post``.

        Waits up to 120 s for another run to end. Each migration is one transaction with its record, so a
        failed run leaves whole migrations behind and can be repeated.
        """
        done: list[Migration] = []
        own_session = replace(self._settings, transaction_pooler=False)
        async with self._connected(own_session) as connection, _alone(connection):
            await self._prepare_schema(connection)
            for migration in self._pending(await _applied(connection)):
                if migration.phase == "post" and upto == "pre":
                    break
                await _apply_one(connection, migration)
                done.append(migration)
        return done

    async def sql(self, *, pending_only: bool = False) -> str:
        """The text for a DBA to run by hand: everything, or what the database lacks."""
        migrations = await self.plan() if pending_only else list(self._migrations)
        return as_script(migrations, self._settings.schema)

    def _pending(self, applied: Sequence[_Applied]) -> list[Migration]:
        known = {migration.number: migration for migration in self._migrations}
        for record in applied:
            self._check_record(record, known.get(record.number))
        return [m for m in self._migrations if m.number not in {record.number for record in applied}]

    def _check_record(self, record: _Applied, ours: Migration | None) -> None:
        title = f"{record.number:04}_{record.name}"
        if ours is None:
            if record.phase == "post":
                what = f"the database is newer than this version of fairlead: {title} was applied to it"
                raise ConfigInvalid(what, hint="install the newer fairlead again, or restore a backup")
        elif ours.checksum != record.checksum:
            what = f"migration {title} is not the one that was applied to this database"
            hint = f"restore the file {ours.title}.sql as it was released; changes go into a new migration"
            raise ConfigInvalid(what, hint=hint)

    async def _prepare_schema(self, connection: Connection) -> None:
        check_encoding((await _run(connection, statement("server_check").text))[0]["encoding"])
        if self._settings.schema is not None:
            made = await _run(connection, statement("schema_create").text, self._settings.schema)
            await _run(connection, made[0]["text"])
        creators = (await _run(connection, statement("server_check").text))[0]["creators"]
        if creators:
            what = f"{creators} may create objects in this schema, which could run with the rights of others"
            raise ConfigInvalid(
                what, hint=f"run REVOKE CREATE ON SCHEMA ... FROM {creators}, and migrate again"
            )
        await _run(connection, statement("migration_table").text)

    @asynccontextmanager
    async def _connected(self, settings: DatabaseSettings) -> AsyncIterator[Connection]:
        options = connect_options(settings)
        options["command_timeout"] = _APPLY_TIMEOUT_S  # an index on a large table takes its time
        if not settings.transaction_pooler:
            options["server_settings"] |= {"statement_timeout": "0", "lock_timeout": _LOCK_TIMEOUT}
        try:
            connection = cast(Connection, await asyncpg.connect(**options))
        except CONNECT_ERRORS as error:
            no_connection(error)
        try:
            yield connection
        finally:
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=_CLOSE_WITHIN_S)


async def _applied(connection: Connection) -> list[_Applied]:
    """What was applied to this schema; nothing where nobody has migrated yet."""
    found = await _run(connection, statement("migration_table_exists").text)
    if not found[0]["exists"]:
        return []
    rows = await _run(connection, statement("migration_list").text)
    return [_Applied(row["number"], row["name"], row["phase"], row["checksum"]) for row in rows]


async def _apply_one(connection: Connection, migration: Migration) -> None:
    """Raises MigrationNeeded where it fails. One that gets no lock is undone and tried again, for 120 s."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LOCK_WITHIN_S
    while True:
        if await _applied_now(connection, migration, last=loop.time() > deadline):
            return
        await asyncio.sleep(_PATIENCE_PAUSE_S)


async def _applied_now(connection: Connection, migration: Migration, *, last: bool) -> bool:
    """False: it got no lock in time, and nothing was done; on the *last* try that is a failure, too."""
    try:
        if migration.transactional:
            async with connection.transaction(isolation=ISOLATION):
                await _be_patient(connection, _PATIENCE_MS, within_transaction=True)
                await connection.execute(migration.text)
                await _record(connection, migration)
        else:
            if migration.index is not None:
                await _be_patient(connection, _INDEX_PATIENCE_MS, within_transaction=False)
                (drop,) = await _run(connection, statement("migration_index_drop").text, migration.index)
                await connection.execute(drop["text"])
            await connection.execute(migration.text)
            await _record(connection, migration)
    except asyncpg.PostgresError as error:
        locked = isinstance(error, asyncpg.LockNotAvailableError)
        if locked and migration.transactional and not last:
            return False
        reason = "the transactions before it have ended (pg_stat_activity.xact_start)"
        if not locked or migration.index is None:
            reason = "the reason is gone"
        hint = f"{_left_by(migration)}; run `fairlead migrate` again once {reason}"
        raise MigrationNeeded(f"migration {migration.title} failed: {error}", hint=hint) from error
    except DRIVER_ERRORS as error:
        raise of_statement(error, connected=not connection.is_closed()) from error
    return True


def _left_by(migration: Migration) -> str:
    """What there is of *migration* once it failed."""
    if migration.transactional:
        return "nothing of it was kept"
    if migration.index is not None:
        return f"the next run drops what it left ({migration.index}, INVALID)"
    return "the steps that it has done are kept, and done again"


async def _be_patient(connection: Connection, patience_ms: int, *, within_transaction: bool) -> None:
    patience = statement("migration_patience")
    values = {"patience_ms": str(patience_ms), "within_transaction": within_transaction}
    await connection.fetch(patience.text, *patience.args(**values))


async def _record(connection: Connection, migration: Migration) -> None:
    record = statement("migration_record")
    await connection.fetch(record.text, *record.args(**_record_values(migration)))


def _record_values(migration: Migration) -> dict[str, object]:
    return {
        "number": migration.number,
        "name": migration.name,
        "phase": migration.phase,
        "checksum": migration.checksum,
    }


@asynccontextmanager
async def _alone(connection: Connection) -> AsyncIterator[None]:
    """Hold the lock of migrations of this database.

    It is asked for again and again instead of waited for: a waiting statement would hold a snapshot, and
    CREATE INDEX CONCURRENTLY of the run that has the lock waits for all snapshots.
    """
    deadline = asyncio.get_running_loop().time() + _LOCK_WITHIN_S
    while not (await _run(connection, statement("migration_lock").text))[0]["locked"]:
        if asyncio.get_running_loop().time() > deadline:
            what = f"another migration run has held its lock for over {_LOCK_WITHIN_S:.0f} s"
            raise DependencyUnavailable(what, hint="look at pg_stat_activity, and run it again")
        await asyncio.sleep(_LOCK_EVERY_S)
    yield  # the lock ends with the connection


async def _run(connection: Connection, text: str, *args: object, what: str | None = None) -> list[Row]:
    """The rows of *text*; several statements (no rows) where there are no *args*."""
    try:
        if what is None:
            return await connection.fetch(text, *args)
        await connection.execute(text)
        return []
    except DRIVER_ERRORS as error:
        if what is not None and isinstance(error, asyncpg.PostgresError):
            raise MigrationNeeded(
                f"migration {what} failed: {error}", hint="nothing of it was kept"
            ) from error
        raise of_statement(error, connected=not connection.is_closed()) from error


# ---- text for people -----------------------------------------------------------------------------


def as_script(migrations: Sequence[Migration], schema: str | None) -> str:
    """*migrations* with their records as one psql script, as patient with locks as one try of `apply`."""
    as_first = f"SET lock_timeout = '{_LOCK_TIMEOUT}';"
    parts = ["\\set ON_ERROR_STOP on", as_first]
    if schema is not None:
        parts.append(f"{_inlined(statement('schema_create'), schema=schema)} \\gexec")
        parts.append(f"{_inlined(statement('schema_use'), schema=schema)};")
    parts.append(f"{statement('migration_table').text};")
    for migration in migrations:
        record = _inlined(statement("migration_record"), **_record_values(migration))
        body = f"{migration.text.rstrip()}\n{record};"
        if migration.transactional:
            body = f"BEGIN;\nSET LOCAL lock_timeout = {_PATIENCE_MS};\n{body}\nCOMMIT;"
        elif migration.index is not None:
            drop = f"{_inlined(statement('migration_index_drop'), index=migration.index)} \\gexec"
            body = f"SET lock_timeout = {_INDEX_PATIENCE_MS};\n{drop}\n{body}\n{as_first}"
        parts.append(body)
    return "\n\n".join(parts) + "\n"


def _inlined(made: Statement, **values: object) -> str:
    """The text of *made* with literals in the place of its parameters."""
    args = made.args(**values)
    return re.sub(r"\$(\d+)", lambda match: _literal(args[int(match[1]) - 1]), made.text)


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
