"""A grant that is stored twice, as by a caller that does not know whether it was stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.testing.ledger import judge

KEY = ConnectionKey("acme", "strict")


def grant_of(issuer) -> Grant:
    tokens = issuer.register("strict", "acme", account_id="account-acme")
    return Grant(access_token=Secret(tokens.access_token), refresh_token=Secret(tokens.refresh_token))


async def test_upsert_again_leaves_a_grant_that_was_refreshed_since(fl, issuer) -> None:
    grant = grant_of(issuer)
    connection_id = (await fl.connections.upsert(KEY, grant, actor="test")).connection_id
    await fl.coordinator.refresh(connection_id, 1)
    assert (await fl.connections.upsert(KEY, grant, actor="test")).generation == 2
    assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3
    assert not judge(issuer.ledger()).violations


async def test_upsert_again_leaves_the_refresh_in_flight(fl, issuer) -> None:
    grant = grant_of(issuer)
    connection_id = (await fl.connections.upsert(KEY, grant, actor="test")).connection_id
    hold = issuer.hold("answering")
    flight = asyncio.create_task(fl.coordinator.refresh(connection_id, 1))
    await hold.reached()
    await fl.connections.upsert(KEY, grant, actor="test")
    hold.release()
    assert (await flight).generation == 2


async def test_upsert_stores_what_differs(fl, issuer) -> None:
    grant = grant_of(issuer)
    await fl.connections.upsert(KEY, grant, actor="test")
    longer = await fl.connections.upsert(KEY, replace(grant, expires_in_s=60.0), actor="test")
    other = await fl.connections.upsert(KEY, replace(grant, settings={"observe": True}), actor="test")
    assert (longer.generation, other.generation) == (2, 3)
    await fl.connections.revoke(KEY, actor="test", reason="left")
    again = await fl.connections.upsert(KEY, replace(grant, settings={"observe": True}), actor="test")
    assert (again.generation, again.state) == (4, "active")
