"""A process that closes leaves no word on its way to the workers (`Notifier.close`)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.adapters.postgres import notifier
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.notifier import QUIET_S, Notifier
from tests.support.notes import sql

QUEUES = {"default"}


@pytest.mark.parametrize("patience_s", [2.0, QUIET_S], ids=["it is sent", "it is cut off"])
async def test_closed_wake_ups_send_no_notification(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    """Also a word that was due, and waits for a connection: it was forgotten, and pending for ever."""
    monkeypatch.setattr(notifier, "CLOSE_S", patience_s)
    database = await Database.open(replace(database_settings, max_size=1))
    try:
        wake_ups = Notifier(database)
        async with database.transaction() as transaction:
            await transaction.fetch(sql("SELECT 1"))
            assert [wake_ups.now(QUEUES), wake_ups.now(QUEUES)] == [True, False]
            (telling,) = [task for task in asyncio.all_tasks() if task.get_name() == "fairlead-notify"]
            await asyncio.sleep(2 * QUIET_S)  # it is due, and has no connection
            closing = asyncio.create_task(wake_ups.close())
            await asyncio.wait([closing], timeout=2 * QUIET_S if patience_s > QUIET_S else None)
            assert closing.done() is telling.done() is (patience_s == QUIET_S)
        await closing
        assert telling.done()
        assert telling.cancelled() is (patience_s == QUIET_S)
    finally:
        await database.close()
