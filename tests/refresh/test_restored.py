"""A database that was failed over or restored forgot answers: the journals give them back (R11, R51)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.engine.ports import ConnectionKey, DataKey, Settlement, SettleVerdict
from fairlead.engine.tokens.database_failover import TimelineWatch
from fairlead.errors import OutcomeUnknownError, ReauthRequiredError
from fairlead.events import DatabaseFailedOver, ServiceFailed, TokenRefreshed
from fairlead.policy.providers.profile import Profile
from fairlead.testing.issuer import Issuer
from fairlead.testing.ledger import judge
from tests.refresh.conftest import POLICIES
from tests.refresh.restoring import History, generation, history, refresh_token
from tests.support.altered import alter, altered
from tests.support.refresher import Refresher, refresher
from tests.support.rows import rows, run

__all__ = ["history"]

STRICT = "strict"
KEY = ConnectionKey("acme", STRICT)
EVERY = [policy.replace("_", "-") for policy in POLICIES]
FORGIVING = ["grace", "until-successor-used", "stable"]
"""Policies under which a spent token may be sent again for a while."""


@dataclass
class Hosts:
    """Processes on hosts of one database; each has settled its journal, as one that starts does."""

    database: Database
    profiles: dict[str, Profile]
    folder: Path
    stack: AsyncExitStack

    async def start(self, host: str = "a") -> tuple[Refresher, TimelineWatch]:
        """A process that stays until the end of the test."""
        process = await self.stack.enter_async_context(self.process(host))
        watch = TimelineWatch(process.deps, process.unknown)
        await watch.begin()
        return process, watch

    @asynccontextmanager
    async def process(self, host: str = "a") -> AsyncIterator[Refresher]:
        """A process that ends."""
        async with refresher(self.database, self.profiles, self.folder / host) as process:
            yield process


@pytest.fixture
async def hosts(database: Database, profiles: dict[str, Profile], tmp_path: Path) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(database, profiles, tmp_path, stack)


# ---- when journals are settled again -----------------------------------------------------------------


async def test_a_process_that_starts_settles_what_the_database_lost(issuer, hosts, history) -> None:
    """The history has the same name as before, as where a dump was restored into the same server."""
    async with hosts.process() as process_before:
        connection_id = await process_before.connect(issuer, STRICT)
        await history.keep()
        await process_before.coordinator.refresh(connection_id, 1)
        await process_before.coordinator.refresh(connection_id, 2)
    await history.restore(history.name)
    process_after, watch = await hosts.start()
    assert await generation(process_after, connection_id) == 3
    [floor] = await rows(hosts.database, "SELECT last_value FROM send_epoch")
    heads = [head async for page in process_after.deps.journal.heads() for head in page]
    assert floor["last_value"] >= max(head.epoch for head in heads), "also where the clock is behind now"
    assert (await process_after.coordinator.refresh(connection_id, 3)).generation == 4
    await watch.one_pass()
    assert process_after.told(DatabaseFailedOver) == []
    assert judge(issuer.ledger()).burnt == 0


async def test_running_process_settles_again_when_the_history_changes(issuer, hosts, history) -> None:
    process, watch = await hosts.start()
    connection_id = await process.connect(issuer, STRICT)
    await history.keep()
    await process.coordinator.refresh(connection_id, 1)
    await history.restore()
    await watch.one_pass()
    assert await generation(process, connection_id) == 2
    assert process.told(DatabaseFailedOver) == [DatabaseFailedOver("7/1", "7/2", 1)]
    await watch.one_pass()
    assert len(process.told(DatabaseFailedOver)) == 1


async def test_process_takes_over_journals_of_peers_that_died_since_its_start(issuer, hosts, history) -> None:
    process, watch = await hosts.start()
    async with hosts.process() as peer:
        connection_id = await peer.connect(issuer, STRICT)
        await history.keep()
        await peer.coordinator.refresh(connection_id, 1)
    await history.restore()
    await watch.one_pass()
    assert await generation(process, connection_id) == 2


async def test_a_replay_that_failed_is_done_at_the_next_pass(issuer, hosts, history, monkeypatch) -> None:
    process, watch = await hosts.start()
    connection_id = await process.connect(issuer, STRICT)
    await history.keep()
    await process.coordinator.refresh(connection_id, 1)
    await history.restore()

    async def killed() -> int:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(process.unknown, "replay_all", killed)
        with pytest.raises(RuntimeError):
            await watch.one_pass()
    await watch.one_pass()
    assert await generation(process, connection_id) == 2


@pytest.mark.parametrize("first", ["a", "b"])
async def test_of_answers_on_two_hosts_the_newest_is_stored_whoever_settles_first(
    issuer, hosts, history, first: str
) -> None:
    a, watch_a = await hosts.start("a")
    b, watch_b = await hosts.start("b")
    connection_id = await a.connect(issuer, STRICT)
    await history.keep()
    for old_generation, process in enumerate((a, b, a, b), 1):
        await process.coordinator.refresh(connection_id, old_generation)
    newest = await refresh_token(a, connection_id)
    await history.restore()
    for watch in (watch_a, watch_b, watch_a) if first == "a" else (watch_b, watch_a):
        await watch.one_pass()
    assert await refresh_token(a, connection_id) == newest
    await a.coordinator.refresh(connection_id, 5)
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.burnt, verdict.violations) == (5, 0, ())


async def test_before_anybody_noticed_the_journal_goes_before_the_row(issuer, hosts, history) -> None:
    """Another process of the host is asked for a token."""
    (process, _), (peer, _) = await hosts.start(), await hosts.start()
    connection_id = await process.connect(issuer, STRICT)
    await history.keep()
    await process.coordinator.refresh(connection_id, 1)
    await history.restore()
    assert (await peer.coordinator.refresh(connection_id, 1)).generation == 2
    assert peer.told(TokenRefreshed)[0].recovered
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.burnt, verdict.violations) == (1, 0, ())


# ---- at any step of a refresh, under any policy --------------------------------------------------------

STEPS = ["intent", "sent", "answer", "journal", "settle"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("policy", EVERY)
async def test_a_backup_taken_within_a_refresh_costs_no_token(
    issuer, hosts, history, policy: str, step: str
) -> None:
    """The host that refreshed starts first; then another host refreshes."""
    async with hosts.process("a") as a:
        connection_id = await a.connect(issuer, policy)
        where = {"intent": "claim", "sent": "mark_sent", "settle": "settle"}
        of = a.deps.store if step in where else a.deps.journal
        name = where.get(step, "append")
        act = getattr(of, name)

        async def with_backup(*args: object) -> object:
            if step == "answer":
                await history.keep()
            result = await act(*args)
            if step != "answer":
                await history.keep()
            return result

        with altered(of, **{name: with_backup}):
            await a.coordinator.refresh(connection_id, 1)
        await a.coordinator.refresh(connection_id, 2)
    await history.restore()
    await hosts.start("a")
    b, _ = await hosts.start("b")
    assert (await b.coordinator.refresh(connection_id, 3)).generation == 4
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.generations, verdict.burnt, verdict.violations) == (3, 3, 0, ())


@pytest.mark.parametrize("policy", FORGIVING)
async def test_a_host_without_the_journal_that_was_first_keeps_its_newer_token(
    issuer, hosts, history, policy: str
) -> None:
    """Epochs of the sequence would call the older answer the later one: it was set back."""
    async with hosts.process("a") as a:
        connection_id = await a.connect(issuer, policy)
        await history.keep()
        await run(hosts.database, "SELECT setval('send_epoch', 1000)")
        await a.coordinator.refresh(connection_id, 1)
        if policy == "stable":  # elsewhere the spent one is dead once its successor was used
            await a.coordinator.refresh(connection_id, 2)
    await history.restore()
    b, _ = await hosts.start("b")
    await b.coordinator.refresh(connection_id, 1)
    newest = await refresh_token(b, connection_id)
    a, _ = await hosts.start("a")
    assert await refresh_token(a, connection_id) == newest
    assert (await a.coordinator.refresh(connection_id, 2)).generation == 3
    assert judge(issuer.ledger()).burnt == 0


async def test_token_spent_by_another_host_heals_where_the_provider_did_not_revoke_it(
    issuer, hosts, history
) -> None:
    """No grace: the spent token that went out is refused, and its successor still lies in a journal."""
    a, watch = await hosts.start("a")
    connection_id = await a.connect(issuer, STRICT)
    await history.keep()
    await a.coordinator.refresh(connection_id, 1)
    await history.restore()
    b, _ = await hosts.start("b")
    with pytest.raises(ReauthRequiredError):
        await b.coordinator.refresh(connection_id, 1)
    await watch.one_pass()
    assert (await b.coordinator.refresh(connection_id, 2)).generation == 3


async def test_an_answer_that_comes_after_the_restore_takes_no_newer_place(issuer, hosts, history) -> None:
    """The process that sent lives through it, and another host sent the same token again before."""
    (a, _), (b, _) = await hosts.start("a"), await hosts.start("b")
    connection_id = await a.connect(issuer, "grace")
    await history.keep()
    await run(hosts.database, "SELECT setval('send_epoch', 1000)")
    settle_it = a.deps.store.settle

    async def late(settlement: Settlement) -> SettleVerdict:
        alter(a.deps.store, settle=settle_it)
        await history.restore()
        await b.coordinator.refresh(connection_id, 1)
        return await settle_it(settlement)

    alter(a.deps.store, settle=late)
    assert (await a.coordinator.refresh(connection_id, 1)).generation == 2
    assert await refresh_token(a, connection_id) == issuer.grant("grace", "acme").refresh_token
    assert judge(issuer.ledger()).burnt == 0


async def test_a_caller_with_a_generation_of_before_the_restore_costs_one_request(
    issuer, hosts, history
) -> None:
    """Its token was refused, and the database counts from before: one refresh is newer than both."""
    async with hosts.process("elsewhere") as lost:
        connection_id = await lost.connect(issuer, "stable")
        await history.keep()
        for generation in (1, 2, 3):
            await lost.coordinator.refresh(connection_id, generation)
    await history.restore()
    b, _ = await hosts.start("b")
    assert (await b.coordinator.refresh(connection_id, 4)).generation == 2
    assert judge(issuer.ledger()).provider_posts == 4


# ---- a backup from before a key rotation ----------------------------------------------------------------


async def restored_before_key_rotation(issuer, hosts: Hosts, history: History, policy: str) -> UUID:
    """The answer lies in the journal under a data key that the restore took back."""
    async with hosts.process() as process:
        connection_id = await process.connect(issuer, policy)
        await history.keep()
        [old] = await process.deps.vault._keys.samples()
        assert isinstance(old, DataKey)
        await process.deps.vault.renew(old)
        await process.coordinator.refresh(connection_id, 1)
    await history.restore()
    return connection_id


@pytest.mark.parametrize("policy", ["stable", "grace"])
async def test_an_answer_under_a_key_that_is_gone_is_a_lost_one(issuer, hosts, history, policy: str) -> None:
    connection_id = await restored_before_key_rotation(issuer, hosts, history, policy)
    process, _ = await hosts.start()
    assert process.told(ServiceFailed)
    if policy == "grace":  # as after any lost answer: not before the request may be over
        with pytest.raises(OutcomeUnknownError):
            await process.coordinator.refresh(connection_id, 1)
        return
    assert (await process.coordinator.refresh(connection_id, 1)).generation == 2
    assert judge(issuer.ledger()).burnt == 0


async def test_refresh_is_not_sent_again_while_the_token_lives_where_there_is_no_grace(
    issuer, hosts, history
) -> None:
    connection_id = await restored_before_key_rotation(issuer, hosts, history, "strict-family-revoke")
    process, _ = await hosts.start()
    with pytest.raises(OutcomeUnknownError):
        await process.coordinator.refresh(connection_id, 1)
    assert judge(issuer.ledger()).provider_posts == 1


# ---- grants of before and after ---------------------------------------------------------------------------


async def granted_again(fl: Refresher, issuer: Issuer, history: History) -> UUID:
    """The restore took back a reconnect and a refresh of it; the customer reconnected once more."""
    connection_id = await fl.connect(issuer, STRICT)
    await history.keep()
    await fl.connect(issuer, STRICT)
    await fl.coordinator.refresh(connection_id, 2)
    await history.restore()
    await fl.connect(issuer, STRICT)
    return connection_id


async def test_a_grant_given_since_is_not_replaced_by_the_answer_of_one_that_was_lost(
    issuer, hosts, history
) -> None:
    """Both had the same generation; the provider has forgotten the one before."""
    process, watch = await hosts.start()
    connection_id = await granted_again(process, issuer, history)
    await watch.one_pass()
    assert await refresh_token(process, connection_id) == issuer.grant(STRICT, "acme").refresh_token
    for old_generation in (2, 3):
        assert (
            await process.coordinator.refresh(connection_id, old_generation)
        ).generation == old_generation + 1
    assert [event.recovered for event in process.told(TokenRefreshed)] == [False] * 3
    assert await refresh_token(process, connection_id) == issuer.grant(STRICT, "acme").refresh_token
    verdict = judge(issuer.ledger())
    assert (verdict.provider_posts, verdict.burnt, verdict.violations) == (3, 0, ())


async def test_nor_by_an_answer_that_waited_for_the_database(issuer, hosts, history) -> None:
    """Its process asks until the store answers, and by then another grant has its generation."""
    process, _ = await hosts.start()
    connection_id = await process.connect(issuer, STRICT)
    await history.keep()
    await process.connect(issuer, STRICT)
    settle_it = process.deps.store.settle

    async def late(settlement: Settlement) -> SettleVerdict:
        alter(process.deps.store, settle=settle_it)
        await history.restore()
        await process.connect(issuer, STRICT)
        return await settle_it(settlement)

    alter(process.deps.store, settle=late)
    assert (await process.coordinator.refresh(connection_id, 2)).generation == 3
    assert await refresh_token(process, connection_id) == issuer.grant(STRICT, "acme").refresh_token
    assert judge(issuer.ledger()).provider_posts == 2


async def test_an_answer_that_its_row_names_is_taken_though_the_clock_was_set_back(issuer, hosts) -> None:
    """It says that the grant was given after the send; nothing was restored."""
    async with hosts.process() as dying:
        connection_id = await dying.connect(issuer, STRICT)

        async def killed(settlement: Settlement) -> SettleVerdict:
            raise RuntimeError("killed here")

        alter(dying.deps.store, settle=killed)
        with pytest.raises(RuntimeError):
            await dying.coordinator.refresh(connection_id, 1)
    await run(hosts.database, "UPDATE worker_session SET lost_at = now()")
    await run(hosts.database, "UPDATE credential SET granted_at = now() + interval '1 minute'")
    heir, _ = await hosts.start()
    assert (await heir.coordinator.refresh(connection_id, 1)).generation == 2
    assert judge(issuer.ledger()).provider_posts == 1


async def test_a_grant_from_before_its_moment_was_noted_is_given_back_as_ever(issuer, hosts, history) -> None:
    process, watch = await hosts.start()
    connection_id = await process.connect(issuer, STRICT)
    await run(hosts.database, "UPDATE credential SET granted_at = NULL")
    await history.keep()
    await process.coordinator.refresh(connection_id, 1)
    await history.restore()
    await watch.one_pass()
    assert await generation(process, connection_id) == 2
