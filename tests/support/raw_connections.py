"""A connection of our pool without what `Database` adds, for statements that are not ours.

One place reaches behind `Database`: tests set rows, read the server's counters and hold locks with it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from fairlead.adapters.postgres.database import Database

__all__ = ["raw_connection", "raw_connection_of"]


def raw_connection(database: Database) -> AbstractAsyncContextManager[Any]:
    """Lend a connection of *database* for the block."""
    return database._checkouts.checkout()


def raw_connection_of(transaction: Any) -> Any:
    """Return the connection that *transaction* of a `Database` holds."""
    return transaction._connection
