"""A database that goes back to an earlier moment under fairlead: after a fail-over, a snapshot or a dump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from tests.support.refresher import Refresher
from tests.support.rows import rows, run

TABLES = ("connection", "credential", "refresh_attempt", "data_key")


@dataclass
class History:
    """The tables of tokens, to be taken back to what they were at `keep`; *name* is what `timeline` gives."""

    database: Database
    name: str = "7/1"
    kept: dict[str, Sequence[Any]] = field(default_factory=dict)
    epoch: int = 1

    async def keep(self) -> None:
        """Remember this moment."""
        for table in TABLES:
            self.kept[table] = await rows(self.database, f"SELECT * FROM {table}")
        [last] = await rows(self.database, "SELECT last_value FROM send_epoch")
        self.epoch = last["last_value"]

    async def restore(self, name: str = "7/2") -> None:
        """Go back there; other processes read *name* from now on."""
        for table in reversed(TABLES):
            await run(self.database, f"DELETE FROM {table}")
        for table in TABLES:
            for row in self.kept[table]:
                columns = ", ".join(row.keys())
                marks = ", ".join(f"${number}" for number in range(1, len(row) + 1))
                await run(self.database, f"INSERT INTO {table} ({columns}) VALUES ({marks})", *row.values())
        await run(self.database, "SELECT setval('send_epoch', $1)", self.epoch)
        self.name = name


@pytest.fixture
def history(database: Database, monkeypatch: pytest.MonkeyPatch) -> History:
    """The history of the database, under the test's control."""
    history = History(database)

    async def timeline(_store: PostgresCredentialStore) -> str:
        return history.name

    monkeypatch.setattr(PostgresCredentialStore, "timeline", timeline)
    return history


async def generation(fl: Refresher, connection_id: UUID) -> int:
    """Return which generation is stored."""
    credential = await fl.deps.store.read_id(connection_id)
    assert credential is not None
    return credential.generation


async def refresh_token(fl: Refresher, connection_id: UUID) -> str:
    """Return the stored refresh token."""
    credential = await fl.deps.store.read_id(connection_id)
    assert credential is not None
    token = (await fl.settler.open_secrets(credential)).tokens.refresh_token
    assert token is not None
    return token.reveal()
