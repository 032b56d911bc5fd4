"""A table of notes, to write to without knowing any of ours."""

from __future__ import annotations

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.statements import Statement
from tests.support.rows import run


def sql(text: str, *params: str) -> Statement:
    """Return a statement that is in no file."""
    return Statement("test", text, params)


INSERT = sql("INSERT INTO note (id) VALUES ($1) RETURNING id", "id")
COUNT = sql("SELECT count(*) AS n FROM note")


async def make_notes(database: Database) -> None:
    """Create the table."""
    await run(database, "CREATE TABLE note (id integer PRIMARY KEY, body jsonb CHECK (body <> '0'))")


async def count(database: Database) -> int:
    """Return the number of notes."""
    row = await database.first(COUNT)
    assert row is not None
    return int(row["n"])
