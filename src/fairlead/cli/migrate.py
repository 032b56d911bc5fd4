"""``fairlead migrate``: bring the database to this version, or show what is missing.

It does not use `cli.kit.changes`: a runtime refuses to start on an older schema, and the audit trail is one of
the tables that a migration may create. The table of applied migrations is the record.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.changes import DryRun
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single
from fairlead.errors import MigrationRequiredError

if TYPE_CHECKING:
    from fairlead.assembly.stores import Migration

app = single()

COLUMNS = ("migration", "phase", "state")


class Phase(StrEnum):
    """When a migration may be applied."""

    PRE = "pre"
    POST = "post"


@command(app, "migrate")
def migrate(
    call: Invocation,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print what is missing as a psql script, and change nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only check whether something is missing; ends with 78 if so.")
    ] = False,
    upto: Annotated[
        Phase,
        typer.Option(
            "--upto", help="pre: stop before migrations that a running older version would not survive."
        ),
    ] = Phase.POST,
    dry_run: DryRun = False,
) -> Exit | None:
    """Apply the migrations that the database lacks. Safe to run twice, and by several at once."""
    if sql:
        call.out.text(asyncio.run(_script(call)))
        return None
    changes = not (check or dry_run)
    migrations, warning = asyncio.run(_apply(call, upto) if changes else _plan(call))
    call.out.rows(
        [
            {
                "migration": migration.title,
                "phase": migration.phase,
                "state": "applied" if changes else "pending",
            }
            for migration in migrations
        ],
        COLUMNS,
        none="the database is up to date",
    )
    if warning is not None:
        call.out.warn(warning)
    if check and migrations:
        raise MigrationRequiredError(f"the database lacks {len(migrations)} migration(s)")
    return None


async def _plan(call: Invocation) -> tuple[list[Migration], None]:
    """Return the pending migrations, and no warning: only `_apply` has one."""
    from fairlead.assembly.stores import migrator

    async with migrator(call.config().settings) as opened:
        return await opened.plan(), None


async def _apply(call: Invocation, upto: Phase) -> tuple[list[Migration], str | None]:
    """Return the applied migrations, and the SQL an administrator must run if row security is off."""
    from fairlead.assembly.doctor.database_checks import row_security_check
    from fairlead.assembly.stores import migrator

    async with migrator(call.config().settings) as opened:
        with call.out.progress("migrating"):
            applied = await opened.apply("pre" if upto is Phase.PRE else "post")
        check = row_security_check(await opened.wall())
    return applied, None if check.status == "ok" else f"{check.detail} (hint: {check.hint})"


async def _script(call: Invocation) -> str:
    from fairlead.assembly.stores import migrator

    async with migrator(call.config().settings) as opened:
        return await opened.sql(pending_only=True)
