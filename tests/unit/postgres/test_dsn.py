"""A DSN that cannot be read is told as one; the password in it is not, in no part and no traceback (S13)."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.postgres_info import server_facts
from fairlead.errors import InvalidConfigError

UNREADABLE = (
    "postgresql://shop:sesame/andmore@127.0.0.1/x",  # the address ends at the slash, the port is "sesame"
    "postgresql://shop:andmore@127.0.0.1:sesame/x",
    "sesame andmore",
)
CALLS: dict[str, Callable[[DatabaseSettings], Awaitable[object]]] = {
    "work": Database.open,
    "migrate": lambda settings: Migrator(settings).plan(),
    "doctor": server_facts,
}


@pytest.mark.parametrize("call_name", CALLS)
@pytest.mark.parametrize("dsn", UNREADABLE)
async def test_a_dsn_that_cannot_be_read_is_told_without_it(dsn: str, call_name: str) -> None:
    with pytest.raises(InvalidConfigError, match="DATABASE_URL cannot be read") as refused:
        await CALLS[call_name](DatabaseSettings(dsn))
    text = "".join(traceback.format_exception(refused.value, chain=True))
    foreign_lines = [
        line for line in text.splitlines() if not line.startswith("    ")
    ]  # our own source stands there
    assert "postgresql://user@host" in refused.value.hint
    assert [word for word in ("sesame", "andmore") if word in "\n".join(foreign_lines)] == []
