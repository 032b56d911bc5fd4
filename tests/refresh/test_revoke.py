"""A revocation reaches the newest token, and the refresh that is under way (R55)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.engine.ports import ConnectionKey, HttpResponse, TokenCall
from fairlead.engine.tokens.account import Accounts
from fairlead.engine.tokens.grants import Grants
from fairlead.errors import ReauthRequiredError
from fairlead.events import ServiceFailed
from tests.support.altered import alter
from tests.support.refresher import FAST, Refresher, local_profile, refresher
from tests.support.rows import run

KEY = ConnectionKey("acme", "strict")
ACTOR_AND_REASON = {"actor": "test", "reason": "left"}


@pytest.fixture
async def revoked(fl: Refresher) -> list[str]:
    """The refresh tokens that the provider was asked to revoke; it confirms the first alone."""
    urls: list[str] = []
    send = fl.deps.transport.send

    async def sent(call: TokenCall, before_sent: Callable[[], Awaitable[None]]) -> Any:
        if not call.url.endswith("/revoke"):
            return await send(call, before_sent)
        urls.append(call.form["token"].reveal())
        return HttpResponse(200 if len(urls) == 1 else 503, {}, b"", 0.0, 0.0)

    alter(fl.deps.transport, send=sent)
    return urls


@pytest.fixture
async def fl(database, issuer, tmp_path: Path):
    revoke = {"url": f"{issuer.url}/strict/revoke", "authenticates": "client"}
    profile = local_profile(issuer.url, "strict", "strict", rotates=True, revoke=revoke)
    async with refresher(database, {"strict": profile}, tmp_path / "journal") as process:
        yield process


def accounts(fl: Refresher) -> Accounts:
    return Accounts(fl.deps, Grants(fl.deps, FAST), fl.settler, fl.reader, fl.connections)


async def test_revoke_ends_the_answer_of_a_refresh_that_was_under_way(fl, issuer, revoked) -> None:
    connection_id = await fl.connect(issuer, "strict")
    hold = issuer.hold("answering")
    flight = asyncio.create_task(fl.coordinator.refresh(connection_id, 1))
    await hold.reached()
    news, vendor_reply = await accounts(fl).revoke(KEY, **ACTOR_AND_REASON)
    assert (news, vendor_reply.partition(",")[0]) == (True, "confirmed")
    assert "refresh was under way" in vendor_reply
    hold.release()
    with pytest.raises(ReauthRequiredError):
        await flight
    assert revoked[-1] == issuer.grant("strict", "acme").refresh_token
    assert [failed.reason.rpartition(": ")[2] for failed in fl.told(ServiceFailed)] == ["answered 503"]


async def test_revoke_ends_the_token_that_was_settled_meanwhile(fl, issuer, revoked, monkeypatch) -> None:
    connection_id = await fl.connect(issuer, "strict")
    revoke = fl.connections.revoke

    async def later(*args: Any, **more: Any) -> bool:
        await fl.coordinator.refresh(connection_id, 1)
        return await revoke(*args, **more)

    monkeypatch.setattr(fl.connections, "revoke", later)
    assert await accounts(fl).revoke(KEY, **ACTOR_AND_REASON) == (True, "confirmed")
    assert revoked == [issuer.grant("strict", "acme").refresh_token]


async def test_revoke_tells_why_the_provider_was_not_asked(fl, issuer, database, revoked) -> None:
    await fl.connect(issuer, "strict")
    await run(database, "UPDATE credential SET sealed = set_byte(sealed, 40, get_byte(sealed, 40) # 1)")
    news, vendor_reply = await accounts(fl).revoke(KEY, **ACTOR_AND_REASON)
    assert news
    assert vendor_reply.startswith("not asked: the sealed credential")
    fl.deps.profiles.profiles = {}
    news, vendor_reply = await accounts(fl).revoke(KEY, **ACTOR_AND_REASON)
    assert not news
    assert vendor_reply.startswith("not asked: ")
    assert revoked == []
