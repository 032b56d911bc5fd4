"""CredentialStore: connections, as they are stored, found and scanned."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairlead.engine.ports import ConnectionKey, CredentialState, Lifetime, Sealed, SettingsChange
from fairlead.errors import InvalidInputError
from tests.contract.credential_steps import (
    FOR_EVER,
    HOUR,
    KEY,
    again,
    claim,
    connected,
    intent,
    new_credential,
    read_credential,
    reauth_requirement,
    sent,
)
from tests.contract.stores import Stores, a_session, claimed, discarded
from tests.support.engine import IDS, NOBODY

SOON = Lifetime(expires_in_s=300.0, urgent_in_s=100.0, critical_in_s=200.0, due_in_s=50.0)

# ---- connections -----------------------------------------------------------------------------------


async def test_stored_credential_is_read_by_name_and_by_id(stores: Stores) -> None:
    new = new_credential(account_id="77")
    assert await stores.credentials.create(new)
    credential = await read_credential(stores)
    connection = credential.connection
    assert (connection.connection_id, connection.key, connection.variant) == (new.connection_id, KEY, "eu")
    assert (connection.account_id, connection.client_id) == ("77", "app")
    assert (connection.endpoint, connection.settings) == ({"shop": "x"}, {"calls": 2})
    assert (credential.state, credential.state_reason, credential.generation) == ("active", None, 1)
    assert (credential.settled_epoch, credential.sealed, credential.refreshable) == (0, new.sealed, True)
    assert (credential.refreshed_age_s, credential.rotation) == (None, None)
    offsets_s = [3600, 3000, 3500, 2900]
    assert [
        credential.expires_in_s,
        credential.urgent_in_s,
        credential.critical_in_s,
        credential.due_in_s,
    ] == pytest.approx(offsets_s, abs=5)
    assert credential.expires_at is not None
    assert (credential.expires_at - credential.read_at).total_seconds() == credential.expires_in_s
    by_id = await stores.credentials.read_id(new.connection_id)
    assert by_id is not None
    assert by_id.connection == connection


async def test_missing_connection_reads_as_none(stores: Stores) -> None:
    await connected(stores)
    for key in (KEY._replace(tenant="x"), KEY._replace(provider="x"), KEY._replace(account="x")):
        assert await stores.credentials.read(key) is None
    assert await stores.credentials.read_id(NOBODY) is None


async def test_a_name_is_given_once(stores: Stores) -> None:
    first = await connected(stores)
    assert not await stores.credentials.create(new_credential())
    assert (await read_credential(stores)).connection == first.connection
    assert await stores.credentials.create(new_credential(KEY._replace(account="other")))
    with pytest.raises(InvalidInputError):
        await stores.credentials.create(
            new_credential(KEY._replace(account="third"), connection_id=first.connection.connection_id)
        )


async def test_a_token_may_live_for_ever(stores: Stores) -> None:
    credential = await connected(stores, lifetime=FOR_EVER, refreshable=False)
    assert (credential.expires_in_s, credential.due_in_s, credential.expires_at) == (None, None, None)
    assert not credential.refreshable
    await stores.pass_time(1e6)
    page = await stores.credentials.due(urgent_only=False, cool_down_s=0, cursor=None, limit=9)
    assert page.connections == []


async def test_time_passes_for_tokens(stores: Stores) -> None:
    await connected(stores)
    await stores.pass_time(3000)
    credential = await read_credential(stores)
    assert [credential.expires_in_s, credential.due_in_s] == pytest.approx([600, -100], abs=5)


async def test_a_new_grant_in_place(stores: Stores) -> None:
    old = await connected(stores, account_id="77")
    await sent(stores, intent(old, await a_session(stores)))
    new = again(old, variant=None, client_id="app2", endpoint={}, settings={"calls": 3}, refreshable=False)
    assert await stores.credentials.replace(new)
    now = await read_credential(stores)
    connection = now.connection
    assert (now.generation, now.settled_epoch, now.state, now.rotation) == (2, 0, "active", None)
    assert (now.sealed, now.refreshable, now.refreshed_age_s) == (new.sealed, False, None)
    assert (connection.variant, connection.client_id, connection.account_id) == (None, "app2", "77")
    assert (connection.endpoint, connection.settings) == ({}, {"calls": 3})
    assert connection.version > old.connection.version


async def test_when_a_grant_was_given_stays_until_the_next_one(stores: Stores) -> None:
    """By the clock that says when a token was sent."""
    await connected(stores)
    await stores.pass_time(100)
    credential = await read_credential(stores)
    answer = await sent(stores, intent(credential, await a_session(stores)))
    assert credential.granted_at is not None
    assert (answer.sent_at - credential.granted_at).total_seconds() == pytest.approx(100, abs=5)
    await stores.credentials.settle(answer)
    refreshed = await read_credential(stores)
    assert (refreshed.generation, refreshed.granted_at) == (2, credential.granted_at)
    assert await stores.credentials.replace(again(refreshed))
    granted_at = (await read_credential(stores)).granted_at
    assert granted_at is not None
    assert (granted_at - credential.granted_at).total_seconds() == pytest.approx(100, abs=5)


async def test_of_two_new_grants_the_first_wins(stores: Stores) -> None:
    credential = await connected(stores)
    first, two = again(credential), again(credential)
    wins = await asyncio.gather(stores.credentials.replace(first), stores.peer().replace(two))
    assert sorted(wins) == [False, True]
    winner = first if wins[0] else two
    assert (await read_credential(stores)).sealed == winner.sealed
    for generation in (1, 2, 4):  # the one before it is the one that stands
        assert not await stores.credentials.replace(replace(first, generation=generation))
    assert not await stores.credentials.replace(replace(again(credential), connection_id=NOBODY))


async def test_settings_change_for_who_read_the_latest(stores: Stores) -> None:
    credential = await connected(stores)
    change = SettingsChange(credential.connection, {"rate": 5})
    assert await stores.credentials.configure(change, actor="ann", audit_id=IDS.uuid7())
    assert not await stores.credentials.configure(change, actor="bob", audit_id=IDS.uuid7())
    now = await read_credential(stores)
    assert (now.connection.settings, now.generation) == ({"rate": 5}, 1)
    assert now.connection.version > credential.connection.version
    record = (await stores.trail())[-1]
    assert (record.act, record.actor) == ("connection.configured", "ann")
    assert record.details == {"set": {"rate": 5}, "unset": ["calls"]}
    removal = SettingsChange(replace(now.connection, connection_id=NOBODY), {})
    assert not await stores.credentials.configure(removal, actor="ann", audit_id=IDS.uuid7())


async def test_settings_and_the_record_that_is_sealed_for_them_change_together(stores: Stores) -> None:
    credential = await connected(stores)
    fit, other = Sealed(IDS.uuid7(), b"for these"), Sealed(IDS.uuid7(), b"another")
    late = SettingsChange(credential.connection, {"hosts": ["a.example"]}, expected_sealed=other, sealed=fit)
    assert not await stores.credentials.configure(late, actor="ann", audit_id=IDS.uuid7())
    untouched = await read_credential(stores)
    assert (untouched.connection, untouched.sealed) == (credential.connection, credential.sealed)
    change = replace(late, expected_sealed=credential.sealed)
    assert await stores.credentials.configure(change, actor="ann", audit_id=IDS.uuid7())
    now = await read_credential(stores)
    assert (now.sealed, now.generation, now.connection.settings) == (fit, 1, {"hosts": ["a.example"]})
    stale = replace(change, expected_sealed=fit, sealed=other)
    assert not await stores.credentials.configure(stale, actor="bob", audit_id=IDS.uuid7()), "older settings"
    assert (await read_credential(stores)).sealed == fit


async def test_an_answer_replaces_the_record_that_its_sender_saw(stores: Stores) -> None:
    credential = await connected(stores)
    answer = await sent(stores, intent(credential, await a_session(stores)))
    other = Sealed(credential.sealed.key_id, b"another")
    assert await stores.credentials.settle(replace(answer, expected_sealed=other)) == "superseded"
    assert (await read_credential(stores)).generation == 1
    assert await stores.credentials.settle(replace(answer, expected_sealed=credential.sealed)) == "settled"
    assert (await read_credential(stores)).sealed == answer.sealed


async def test_a_new_grant_and_new_settings_do_not_share_a_version(stores: Stores) -> None:
    """The gate goes by the newest: a version that stands still, or goes back, would keep the old settings."""
    versions = [(credential := await connected(stores)).connection.version]
    for step in range(1, 6):
        if step % 2:
            assert await stores.credentials.replace(again(credential, settings={"calls": step}))
        else:
            change = SettingsChange(credential.connection, {"calls": step})
            assert await stores.credentials.configure(change, actor="ann", audit_id=IDS.uuid7())
        credential = await read_credential(stores)
        versions.append(credential.connection.version)
    assert versions == sorted(set(versions))


async def test_revoked_stays_revoked(stores: Stores) -> None:
    credential = await connected(stores)
    connection_id, owner = credential.connection.connection_id, await a_session(stores)
    answer = await sent(stores, intent(credential, owner))
    revoke = {"actor": "ann", "reason": "left"}
    assert await stores.credentials.revoke(connection_id, KEY.tenant, audit_id=IDS.uuid7(), **revoke)
    assert not await stores.credentials.revoke(connection_id, KEY.tenant, audit_id=IDS.uuid7(), **revoke)
    assert not await stores.credentials.revoke(NOBODY, KEY.tenant, audit_id=IDS.uuid7(), **revoke)
    assert await stores.credentials.settle(answer) == "superseded"
    assert await claim(stores.credentials, intent(credential, owner)) is None
    assert not await stores.credentials.require_reauth(reauth_requirement(credential))
    now = await read_credential(stores)
    assert (now.state, now.state_reason, now.due_in_s, now.rotation) == ("revoked", "left", None, None)
    assert await stores.credentials.replace(again(credential)), "a person may give a grant again"
    assert (await read_credential(stores)).state == "active"


@pytest.mark.parametrize("state", ["revoked", "needs_reauth", "unknown"])
async def test_an_imported_state_is_kept_by_create_and_replace(
    stores: Stores, state: CredentialState
) -> None:
    credential = await connected(stores, state=state, state_reason="left", lifetime=FOR_EVER)
    assert (credential.state, credential.state_reason) == (state, "left")
    assert await stores.credentials.replace(again(credential, state=state))
    assert ((await read_credential(stores)).state, (await read_credential(stores)).generation) == (state, 2)


async def test_removed_is_gone_with_all_that_hung_on_it(stores: Stores) -> None:
    credential = await connected(stores)
    connection_id, owner = credential.connection.connection_id, await a_session(stores)
    attempt = intent(credential, owner)
    answer = await sent(stores, attempt)
    assert await stores.credentials.remove(connection_id, KEY.tenant, actor="ann", audit_id=IDS.uuid7())
    assert not await stores.credentials.remove(connection_id, KEY.tenant, actor="ann", audit_id=IDS.uuid7())
    assert await stores.credentials.read(KEY) is None
    assert await stores.credentials.read_id(connection_id) is None
    assert await stores.credentials.settle(answer) == "superseded"
    assert not await stores.credentials.release(connection_id, attempt.attempt_id)
    assert await claim(stores.credentials, intent(credential, owner)) is None
    assert await stores.credentials.counts() == {}
    assert (await stores.trail())[-1].act == "connection.removed"


# ---- looking ---------------------------------------------------------------------------------------


async def test_connections_are_searched_and_counted(stores: Stores) -> None:
    names = [("b", "xero", "2"), ("b", "xero", "1"), ("a", "xero", "1"), ("b", "shopify", "1")]
    credentials = {name: await connected(stores, ConnectionKey(*name)) for name in names}
    revoked = credentials["b", "xero", "2"].connection.connection_id
    await stores.credentials.revoke(revoked, "b", actor="ann", reason="left", audit_id=IDS.uuid7())

    async def search(**criteria: str) -> list[tuple[str, ...]]:
        asked_for = {"tenant": None, "provider": None, "state": None, "limit": 10} | criteria
        return [
            tuple(credential.connection.key) for credential in await stores.credentials.search(**asked_for)
        ]

    assert await search() == sorted(names)
    assert await search(limit=2) == sorted(names)[:2]
    assert await search(tenant="b", provider="xero") == [("b", "xero", "1"), ("b", "xero", "2")]
    assert await search(state="revoked") == [("b", "xero", "2")]
    assert await search(tenant="nobody") == []
    assert await stores.credentials.counts() == {"active": 3, "revoked": 1}


async def test_the_timeline_has_a_name(stores: Stores) -> None:
    assert "/" in await stores.credentials.timeline()


# ---- scans -----------------------------------------------------------------------------------------


async def test_due_pages_cover_everything_once_and_in_order(stores: Stores) -> None:
    for number in range(7):
        lifetime = replace(SOON, due_in_s=50.0 + 10 * (number % 3))
        await connected(stores, KEY._replace(account=f"b{number}"), lifetime)
    await connected(stores, KEY._replace(account="later"), HOUR)
    await stores.pass_time(90)
    accounts, after_cursor, pages = [], None, 0
    while True:
        page = await stores.credentials.due(urgent_only=False, cool_down_s=60, cursor=after_cursor, limit=3)
        accounts += [due.key.account for due in page.connections]
        after_cursor, pages = page.next_cursor, pages + 1
        if after_cursor is None:
            break
    assert (accounts, pages) == (["b0", "b3", "b6", "b1", "b4", "b2", "b5"], 3)


async def test_the_nearer_the_end_the_more_urgent(stores: Stores) -> None:
    await connected(stores, lifetime=SOON)
    results = []
    for delay_s in (40, 30, 50, 90, 100):
        await stores.pass_time(delay_s)
        pages = [
            await stores.credentials.due(urgent_only=urgent_only, cool_down_s=60, cursor=None, limit=9)
            for urgent_only in (False, True)
        ]
        results.append([[(due.priority, due.expired) for due in page.connections] for page in pages])
    assert results == [
        [[], []],
        [[(2, False)], []],
        [[(1, False)], [(1, False)]],
        [[(0, False)], [(0, False)]],
        [[(0, True)], [(0, True)]],
    ]


async def test_a_postponed_one_is_seen_when_it_was_said(stores: Stores) -> None:
    credential = await connected(stores, lifetime=SOON)
    connection_id = credential.connection.connection_id

    async def is_due() -> bool:
        page = await stores.credentials.due(urgent_only=False, cool_down_s=60, cursor=None, limit=9)
        return bool(page.connections)

    await stores.pass_time(60)
    assert await is_due()
    await stores.credentials.postpone(connection_id, 1, 100.0)
    assert not await is_due()
    await stores.pass_time(90)
    assert not await is_due()
    await stores.pass_time(20)
    assert await is_due()
    await stores.credentials.postpone(connection_id, 2, 100.0)
    await stores.credentials.postpone(NOBODY, 1, 100.0)
    assert await is_due(), "that was about another generation"
    await stores.credentials.postpone(connection_id, 1, None)
    await stores.pass_time(1e6)
    assert not await is_due()


async def test_a_dead_refresh_stays_out_until_it_has_cooled_down(stores: Stores) -> None:
    credential = await connected(stores, lifetime=SOON)
    connection_id = credential.connection.connection_id
    job = await claimed(stores, await a_session(stores), kind="token.refresh", tenant_id=KEY.tenant)
    dead = replace(discarded(job, action_in_s=None), connection_id=connection_id)
    await stores.jobs.acknowledge([dead])

    async def due(cool_down_s: float) -> int:
        page = await stores.credentials.due(urgent_only=False, cool_down_s=cool_down_s, cursor=None, limit=9)
        return len(page.connections)

    await stores.pass_time(60)
    assert (await due(100.0), await due(30.0)) == (0, 1)
    owner = await a_session(stores, 2)
    assert (await sent(stores, intent(credential, owner))) is not None
    await stores.sessions.mark_dead([owner])
    assert [len(await stores.credentials.left_behind(9, cool_down_s)) for cool_down_s in (100.0, 30.0)] == [
        0,
        1,
    ]
    await stores.dead_letters.resolve(
        dead.dead_letter_id, status="manual_resolved", resolution="redrive", by="ann", reason="mended"
    )
    assert (await due(100.0), len(await stores.credentials.left_behind(9, 100.0))) == (1, 1)
