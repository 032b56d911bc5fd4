"""What a caller of token() gets: a token that is valid now, or a reason (T2, T6, T8)."""

from __future__ import annotations

import pytest

from fairlead.engine.ports import ConnectionKey
from fairlead.errors import ReauthRequiredError, TransientFailureError
from fairlead.testing.ledger import judge
from tests.support.rows import run

KEY = ConnectionKey("acme", "strict")


async def expire(database, left_interval: str) -> None:
    await run(
        database,
        "UPDATE credential SET expires_at = now() + $1::text::interval,"
        " urgent_at = now() + $1::text::interval - interval '10 min'",
        left_interval,
    )


async def test_a_valid_token_is_served_without_a_request(fl, issuer) -> None:
    await fl.connect(issuer, "strict")
    token = await fl.reader.token(KEY)
    assert token.access_token.reveal() == issuer.grant("strict", "acme").access_token
    assert set(token.as_dict()) == {"access_token", "token_type", "expires_at", "scope", "account_id"}
    assert judge(issuer.ledger()).provider_posts == 0


async def test_an_expired_token_is_refreshed_first(fl, issuer, database) -> None:
    await fl.connect(issuer, "strict")
    old = await fl.reader.token(KEY)
    await expire(database, "-1 s")
    new = await fl.reader.token(KEY)
    assert new.access_token != old.access_token
    assert new.access_token.reveal() == issuer.grant("strict", "acme").access_token


async def test_inside_the_buffer_the_caller_does_not_wait(fl, issuer, database) -> None:
    connection_id = await fl.connect(issuer, "strict")
    old = await fl.reader.token(KEY)
    await expire(database, "60 s")
    hold = issuer.hold("processed")
    assert (await fl.reader.token(KEY)).access_token == old.access_token
    await hold.reached()
    assert (await fl.reader.token(KEY)).access_token == old.access_token
    hold.release()
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    assert (await fl.reader.token(KEY)).access_token != old.access_token
    assert judge(issuer.ledger()).provider_posts == 1


async def test_an_expired_token_is_never_served(fl, issuer, database) -> None:
    await fl.connect(issuer, "strict")
    await expire(database, "-1 s")
    issuer.be_rude({"status": 503})
    with pytest.raises(TransientFailureError):
        await fl.reader.token(KEY)
    issuer.be_polite()
    issuer.revoke("strict", "acme")
    with pytest.raises(ReauthRequiredError) as error:
        await fl.reader.token(KEY)
    assert error.value.account == KEY.account, "by which a job without a group waits for it"


async def test_a_revoked_connection_serves_nothing(fl, issuer) -> None:
    await fl.connect(issuer, "strict")
    assert await fl.connections.revoke(KEY, actor="test", reason="left")
    with pytest.raises(ReauthRequiredError):
        await fl.reader.token(KEY)


async def test_a_401_asks_for_a_newer_one_and_shares_the_refresh(fl, issuer) -> None:
    await fl.connect(issuer, "strict")
    token = await fl.reader.token(KEY)
    fresh = [await fl.reader.refreshed_after(KEY, token.generation) for _ in range(3)]
    assert len({token.access_token for token in fresh}) == 1
    assert judge(issuer.ledger()).provider_posts == 1
