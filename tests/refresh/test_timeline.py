"""A database that was failed over has forgotten its last answers: the journal gives them back (R11)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.ports import ConnectionKey, Settlement, SettleVerdict
from fairlead.engine.services.timeline import TimelineWatch
from fairlead.events import TimelineChanged, TokenRefreshed
from fairlead.testing.issuer import Issuer
from fairlead.testing.ledger import judge
from tests.support.refresher import Refresher, refresher
from tests.support.rows import rows, run

STRICT = "strict"
KEY = ConnectionKey("acme", STRICT)
LOST, NOW = "7/1", "7/2"


class _On:
    """A store that says on which timeline it is."""

    def __init__(self, inner: Any, timeline: str) -> None:
        self._inner = inner
        self._timeline = timeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def timeline(self) -> str:
        return self._timeline


def watch(fl: Refresher, timeline: str) -> TimelineWatch:
    """Of a process that sees the database on *timeline*."""
    return TimelineWatch(replace(fl.rooms, store=_On(fl.rooms.store, timeline)), fl.unknown)


@pytest.fixture
def forgetful(database) -> Callable[[], Awaitable[None]]:
    """What stands in the database when it is called first, stands there again after the second call."""
    kept: list[dict[str, Any]] = []

    async def call() -> None:
        if not kept:
            kept.extend(await rows(database, "SELECT * FROM credential"))
            return
        for row in kept:
            names = ", ".join(f"{name} = ${number}" for number, name in enumerate(row, 1))
            where = f"connection_id = ${len(row) + 1}"
            await run(
                database, f"UPDATE credential SET {names} WHERE {where}", *row.values(), row["connection_id"]
            )

    return call


@asynccontextmanager
async def settled_on(timeline: str, database, profiles, folder: Path) -> AsyncIterator[Refresher]:
    async with refresher(database, profiles, folder) as one:
        await watch(one, timeline).begin()
        yield one


async def generation(fl: Refresher, connection_id: UUID) -> int:
    credential = await fl.rooms.store.read_id(connection_id)
    assert credential is not None
    return credential.generation


async def test_a_process_that_starts_after_the_fail_over_settles_again(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful
) -> None:
    async with settled_on(LOST, database, profiles, tmp_path) as before:
        connection_id = await before.connect(issuer, STRICT)
        await forgetful()
        await before.coordinator.refresh(connection_id, 1)
        await before.coordinator.refresh(connection_id, 2)
    await forgetful()
    async with refresher(database, profiles, tmp_path) as after:
        assert await generation(after, connection_id) == 1
        await watch(after, NOW).begin()
        assert await generation(after, connection_id) == 3
        assert after.told(TimelineChanged) == [TimelineChanged(LOST, NOW, 2)]
        assert (await after.coordinator.refresh(connection_id, 3)).generation == 4
        await watch(after, NOW).one_pass()
        assert len(after.told(TimelineChanged)) == 1
    assert judge(issuer.ledger()).burnt == 0


async def test_one_that_lived_through_it_settles_again_at_its_next_look(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful
) -> None:
    async with settled_on(LOST, database, profiles, tmp_path) as one:
        connection_id = await one.connect(issuer, STRICT)
        await forgetful()
        await one.coordinator.refresh(connection_id, 1)
        await forgetful()
        await watch(one, LOST).one_pass()
        assert await generation(one, connection_id) == 1
        await watch(one, NOW).one_pass()
        assert await generation(one, connection_id) == 2
        assert one.told(TimelineChanged) == [TimelineChanged(LOST, NOW, 1)]


async def test_a_replay_that_failed_is_done_by_who_starts_next(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful, monkeypatch
) -> None:
    async with settled_on(LOST, database, profiles, tmp_path) as before:
        connection_id = await before.connect(issuer, STRICT)
        await forgetful()
        await before.coordinator.refresh(connection_id, 1)
    await forgetful()

    async def killed() -> int:
        raise RuntimeError("killed here")

    async with refresher(database, profiles, tmp_path) as dying:
        monkeypatch.setattr(dying.unknown, "replay_all", killed)
        with pytest.raises(RuntimeError):
            await watch(dying, NOW).begin()
    async with refresher(database, profiles, tmp_path) as next_one:
        await watch(next_one, NOW).begin()
        assert await generation(next_one, connection_id) == 2


async def test_another_database_is_no_fail_over(issuer: Issuer, database, profiles, tmp_path: Path) -> None:
    async with settled_on(LOST, database, profiles, tmp_path) as before:
        connection_id = await before.connect(issuer, STRICT)
        await before.coordinator.refresh(connection_id, 1)
    async with settled_on("8/1", database, profiles, tmp_path) as elsewhere:
        assert elsewhere.told(TimelineChanged) == []


async def test_before_the_next_look_the_journal_goes_before_the_row(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful
) -> None:
    """Nobody has noticed anything yet, and another process of the host is asked for a token."""
    async with (
        settled_on(LOST, database, profiles, tmp_path) as one,
        settled_on(LOST, database, profiles, tmp_path) as peer,
    ):
        connection_id = await one.connect(issuer, STRICT)
        await forgetful()
        await one.coordinator.refresh(connection_id, 1)
        await forgetful()
        assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2
        assert peer.told(TokenRefreshed)[0].recovered
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.burnt, verdict.violations) == (1, 0, ())


async def granted_again(fl: Refresher, issuer: Issuer, forgetful) -> UUID:
    """The fail-over took back a reconnect and a refresh of it; the customer reconnected once more."""
    connection_id = await fl.connect(issuer, STRICT)
    await forgetful()
    await fl.connect(issuer, STRICT)
    await fl.coordinator.refresh(connection_id, 2)
    await forgetful()
    await fl.connect(issuer, STRICT)
    return connection_id


async def refresh_token(fl: Refresher, connection_id: UUID) -> str:
    credential = await fl.rooms.store.read_id(connection_id)
    assert credential is not None
    token = (await fl.settler.stored(credential)).tokens.refresh_token
    assert token is not None
    return token.reveal()


async def test_a_grant_given_since_is_not_replaced_by_the_answer_of_one_that_was_lost(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful
) -> None:
    """Both had the same generation; the provider has forgotten the one before."""
    async with settled_on(LOST, database, profiles, tmp_path) as one:
        connection_id = await granted_again(one, issuer, forgetful)
        for before in (2, 3):
            assert (await one.coordinator.refresh(connection_id, before)).generation == before + 1
        assert [event.recovered for event in one.told(TokenRefreshed)] == [False] * 3
        assert await refresh_token(one, connection_id) == issuer.grant(STRICT, "acme").refresh_token
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.burnt, verdict.violations) == (3, 0, ())


async def test_nor_is_it_by_who_settles_again_after_the_fail_over(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful
) -> None:
    async with settled_on(LOST, database, profiles, tmp_path) as before:
        connection_id = await granted_again(before, issuer, forgetful)
    async with refresher(database, profiles, tmp_path) as after:
        await watch(after, NOW).begin()
        assert await refresh_token(after, connection_id) == issuer.grant(STRICT, "acme").refresh_token
        assert after.told(TimelineChanged) == [TimelineChanged(LOST, NOW, 0)]
        assert (await after.coordinator.refresh(connection_id, 2)).generation == 3
    assert judge(issuer.ledger()).burnt == 0


async def test_nor_by_a_later_send_of_the_lost_one(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful
) -> None:
    """What numbers the sends was set back, too: the number of the lost one is the greater."""
    async with settled_on(LOST, database, profiles, tmp_path) as one:
        await run(database, "SELECT setval('send_epoch', 100)")
        connection_id = await granted_again(one, issuer, forgetful)
        await run(database, "SELECT setval('send_epoch', 50)")
        await one.coordinator.refresh(connection_id, 2)
        await watch(one, NOW).one_pass()
        assert await refresh_token(one, connection_id) == issuer.grant(STRICT, "acme").refresh_token
        assert one.told(TimelineChanged) == [TimelineChanged(LOST, NOW, 0)]


async def test_nor_by_an_answer_that_waited_for_the_database(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful, monkeypatch
) -> None:
    """Its process asks until the store answers, and by then another grant has its generation."""
    async with settled_on(LOST, database, profiles, tmp_path) as one:
        connection_id = await one.connect(issuer, STRICT)
        await forgetful()
        await one.connect(issuer, STRICT)
        settle = one.rooms.store.settle

        async def late(settlement: Settlement) -> SettleVerdict:
            monkeypatch.setattr(one.rooms.store, "settle", settle)
            await forgetful()
            await run(database, "DELETE FROM rotation")
            await one.connect(issuer, STRICT)
            return await settle(settlement)

        monkeypatch.setattr(one.rooms.store, "settle", late)
        assert (await one.coordinator.refresh(connection_id, 2)).generation == 3
        assert await refresh_token(one, connection_id) == issuer.grant(STRICT, "acme").refresh_token
    assert judge(issuer.ledger()).provider_posts == 2


async def test_an_answer_that_its_row_names_is_taken_though_the_clock_was_set_back(
    issuer: Issuer, database, profiles, tmp_path: Path, monkeypatch
) -> None:
    """It says that the grant was given after the send; nothing was failed over."""
    async with settled_on(NOW, database, profiles, tmp_path) as dying:
        connection_id = await dying.connect(issuer, STRICT)

        async def killed(settlement: Settlement) -> SettleVerdict:
            raise RuntimeError("killed here")

        monkeypatch.setattr(dying.rooms.store, "settle", killed)
        with pytest.raises(RuntimeError):
            await dying.coordinator.refresh(connection_id, 1)
    await run(database, "UPDATE worker_session SET lost_at = now()")
    await run(database, "UPDATE credential SET granted_at = now() + interval '1 minute'")
    async with settled_on(NOW, database, profiles, tmp_path) as heir:
        assert (await heir.coordinator.refresh(connection_id, 1)).generation == 2
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.burnt) == (1, 0)


async def test_a_grant_from_before_its_moment_was_noted_is_given_back_as_ever(
    issuer: Issuer, database, profiles, tmp_path: Path, forgetful
) -> None:
    async with settled_on(LOST, database, profiles, tmp_path) as one:
        connection_id = await one.connect(issuer, STRICT)
        await run(database, "UPDATE credential SET granted_at = NULL")
        await forgetful()
        await one.coordinator.refresh(connection_id, 1)
        await forgetful()
        await watch(one, NOW).one_pass()
        assert await generation(one, connection_id) == 2
