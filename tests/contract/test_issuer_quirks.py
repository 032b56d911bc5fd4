"""Every quirk at least once, byte by byte, and what it does to the tokens behind it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qs

import pytest

from fairlead.testing import Issuer, IssuerConfig, ManualClock, ProviderConfig, Quirk, judge
from fairlead.testing.issuer import QUIRKS, IssuedGrant
from fairlead.testing.issuer.quirks import HUGE_TOKEN_BYTES
from tests.support.issuer import FetchedResponse, begin, fetch, refresh_form


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1000.0)


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Issuer]:
    providers = {"p": ProviderConfig.model_validate({"policy": "strict", "ttl_s": 21600})}
    async with Issuer(IssuerConfig(providers=providers), clock=clock) as issuer:
        yield issuer


@pytest.fixture
def grant(issuer: Issuer) -> IssuedGrant:
    return issuer.register("p", "acme", account_id=42)


async def refresh(issuer: Issuer, token: str) -> FetchedResponse:
    return await fetch(f"{issuer.url}/p/token", refresh_form(token))


async def rude(issuer: Issuer, grant: IssuedGrant, quirk: Quirk | str) -> FetchedResponse:
    """The answer to one refresh that meets *quirk*."""
    issuer.be_rude(quirk, times=1)
    return await refresh(issuer, grant.refresh_token)


def generation(issuer: Issuer) -> int:
    return issuer.grant("p", "acme").generation


# ---- fields of the token answer --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ("absent", None),
        ("zero", "0"),
        ("negative", "-1"),
        ("string", '"21600"'),
        ("float", "21600.5"),
        ("milliseconds", "21600000"),
        ("nan", "NaN"),
        ("huge", "1e400"),
        ("null", "null"),
        ("true", "true"),
    ],
)
async def test_expires_in(issuer: Issuer, grant: IssuedGrant, value: str, raw: str | None) -> None:
    reply = await rude(issuer, grant, f"expires_in_{value}")
    match = re.search(rb'"expires_in":([^,}]+)', reply.body)
    assert (None if match is None else match[1].decode()) == raw
    assert (reply.status, generation(issuer)) == (200, 2)
    assert issuer.grant("p", "acme").expires_in_s == 21600, "the token itself lives as ever"


@pytest.mark.parametrize(
    ("value", "raw"), [("absent", None), ("empty", '""'), ("null", "null"), ("same", "same")]
)
async def test_refresh_token_not_renewed(
    issuer: Issuer, grant: IssuedGrant, value: str, raw: str | None
) -> None:
    reply = await rude(issuer, grant, f"refresh_token_{value}")
    expected = json.dumps(grant.refresh_token) if raw == "same" else raw
    match = re.search(rb'"refresh_token":("[^"]*"|null)', reply.body)
    assert (None if match is None else match[1].decode()) == expected
    assert generation(issuer) == 1
    assert (await refresh(issuer, grant.refresh_token)).status == 200
    assert judge(issuer.ledger()).violations == ()


async def test_a_refresh_token_of_a_mebibyte_works(issuer: Issuer, grant: IssuedGrant) -> None:
    reply = await rude(issuer, grant, "refresh_token_huge")
    token = str(reply.json["refresh_token"])
    assert len(token) > HUGE_TOKEN_BYTES
    assert (await refresh(issuer, token)).status == 200
    assert judge(issuer.ledger()).lost_answers == 0


@pytest.mark.parametrize(("value", "odd"), [("crlf", "\r\n"), ("nul", "\x00"), ("non_ascii", "é")])
async def test_odd_access_tokens(issuer: Issuer, grant: IssuedGrant, value: str, odd: str) -> None:
    reply = await rude(issuer, grant, f"access_token_{value}")
    assert odd in str(reply.json["access_token"])
    assert odd.encode() not in reply.body, "escaped, as JSON must be"


async def test_the_same_access_token_early(issuer: Issuer, grant: IssuedGrant, clock: ManualClock) -> None:
    await clock.advance(100)
    reply = await rude(issuer, grant, "same_access_token")
    assert (reply.json["access_token"], reply.json["expires_in"]) == (grant.access_token, 21500)
    assert "refresh_token" not in reply.json
    assert generation(issuer) == 1


async def test_an_odd_token_type(issuer: Issuer, grant: IssuedGrant) -> None:
    assert (await rude(issuer, grant, "odd_token_type")).json["token_type"] == "urn:odd"


async def test_token_of_another_account(issuer: Issuer, grant: IssuedGrant) -> None:
    assert (await rude(issuer, grant, "other_account")).json["account_id"] == 43
    assert generation(issuer) == 2
    named = issuer.register("p", "named", account_id="shop-a")
    issuer.be_rude("other_account", times=1)
    assert (await refresh(issuer, named.refresh_token)).json["account_id"] == "shop-a-other"


async def test_duplicate_keys(issuer: Issuer, grant: IssuedGrant) -> None:
    reply = await rude(issuer, grant, "duplicate_keys")
    assert reply.body.count(b'"access_token"') == reply.body.count(b'"refresh_token"') == 2
    assert reply.json["refresh_token"] == issuer.grant("p", "acme").refresh_token, "the last is true"


async def test_a_form_encoded_answer(issuer: Issuer, grant: IssuedGrant) -> None:
    reply = await rude(issuer, grant, "form_encoded")
    assert reply.headers["content-type"] == "application/x-www-form-urlencoded"
    fields = parse_qs(reply.body.decode())
    assert fields["refresh_token"] == [issuer.grant("p", "acme").refresh_token]
    assert fields["expires_in"] == ["21600"]


@pytest.mark.parametrize("wording", ["message", "both"])
async def test_the_description_under_another_name(issuer: Issuer, grant: IssuedGrant, wording: str) -> None:
    issuer.be_rude(Quirk.model_validate({"wording": wording}))
    body = (await refresh(issuer, "rt_unknown")).json
    assert "message" in body
    assert ("error_description" in body) is (wording == "both")


# ---- answers in place of it ------------------------------------------------------------------------

_INSTEAD = {
    "html_200": (200, b"<html>"),
    "error_200": (200, b'{"error":"bad_refresh_token"}'),
    "no_content": (204, b""),
    "html_400": (400, b"<html>"),
    "invalid_client": (401, b'"invalid_client"'),
    "html_403": (403, b"<html>"),
    "rate_limited": (429, b"local_rate_limited"),
    "status_500": (500, b""),
    "status_502": (502, b""),
    "status_503": (503, b""),
    "status_504": (504, b""),
    "invalid_grant_500": (500, b'{"error":"invalid_grant"}'),
    "redirect": (302, b""),
}


@pytest.mark.parametrize("name", sorted(_INSTEAD))
async def test_an_answer_in_place_leaves_the_token_as_it_was(
    issuer: Issuer, grant: IssuedGrant, name: str
) -> None:
    status, text = _INSTEAD[name]
    reply = await rude(issuer, grant, name)
    assert (reply.status, text in reply.body) == (status, True)
    assert generation(issuer) == 1
    assert (await refresh(issuer, grant.refresh_token)).status == 200
    verdict = judge(issuer.ledger())
    assert (verdict.answered_failures, verdict.violations, verdict.burnt) == (1, (), 0)


@pytest.mark.parametrize("name", ["html_200", "status_500", "no_content"])
async def test_the_same_after_processing_burns_a_strict_token(
    issuer: Issuer, grant: IssuedGrant, name: str
) -> None:
    reply = await rude(issuer, grant, QUIRKS[name].model_copy(update={"processed": True}))
    assert reply.status == _INSTEAD[name][0]
    assert generation(issuer) == 2
    verdict = judge(issuer.ledger())
    assert (verdict.answered_failures, verdict.lost_answers) == (0, 1)
    assert [burn.cause for burn in verdict.burns] == ["lost_answer"]


async def test_retry_after_in_every_form(issuer: Issuer, grant: IssuedGrant) -> None:
    assert "retry-after" not in (await rude(issuer, grant, "rate_limited")).headers
    assert (await rude(issuer, grant, "rate_limited_seconds")).headers["retry-after"] == "2"
    assert (await rude(issuer, grant, "rate_limited_decimal")).headers["retry-after"] == "1.5"
    date = (await rude(issuer, grant, "rate_limited_date")).headers["retry-after"]
    assert parsedate_to_datetime(date).tzinfo is not None
    verbatim = Quirk(status=503, retry_after="9999999999, 5")
    assert (await rude(issuer, grant, verbatim)).headers["retry-after"] == "9999999999, 5"
    arabic = Quirk(status=503, retry_after="\u0665", headers={"Retry-After": "7"})
    assert (await rude(issuer, grant, arabic)).raw.count(b"Retry-After: ") == 2


async def test_client_that_follows_the_redirect_is_counted(issuer: Issuer, grant: IssuedGrant) -> None:
    location = (await rude(issuer, grant, "redirect")).headers["location"]
    assert (await fetch(issuer.url + location, refresh_form(grant.refresh_token))).status == 404
    assert judge(issuer.ledger()).strays == 1


# ---- on the wire -----------------------------------------------------------------------------------


async def test_cut_before_processing(issuer: Issuer, grant: IssuedGrant) -> None:
    assert (await rude(issuer, grant, "cut_before")).raw == b""
    assert generation(issuer) == 1
    verdict = judge(issuer.ledger())
    assert (verdict.answered_failures, verdict.lost_answers, verdict.burnt) == (0, 0, 0)
    await refresh(issuer, grant.refresh_token)
    assert len(judge(issuer.ledger()).violations) == 1, "the client could not know"


async def test_cut_after_processing(issuer: Issuer, grant: IssuedGrant) -> None:
    assert (await rude(issuer, grant, "cut_after")).raw == b""
    assert generation(issuer) == 2


async def test_cut_at_each_byte(issuer: Issuer) -> None:
    token = issuer.register("p", "whole").refresh_token
    size = len((await refresh(issuer, token)).raw)
    for byte in (*range(0, size, 7), size - 1):
        grant = issuer.register("p", f"cut-{byte}")
        issuer.be_rude(Quirk(cut=byte), connection=grant.connection, times=1)
        reply = await refresh(issuer, grant.refresh_token)
        assert (len(reply.raw), reply.whole) == (byte, False)
        assert issuer.grant("p", grant.connection).generation == 2
    verdict = judge(issuer.ledger())
    assert verdict.lost_answers == verdict.burnt == len(range(0, size, 7)) + (size % 7 != 1)


async def test_cut_before_the_last_byte(issuer: Issuer, grant: IssuedGrant) -> None:
    reply = await rude(issuer, grant, "cut_last_byte")
    assert len(reply.body) == int(reply.headers["content-length"]) - 1


async def test_a_slow_head_and_a_slow_body_take_the_issuers_time(
    issuer: Issuer, grant: IssuedGrant, clock: ManualClock
) -> None:
    issuer.be_rude(Quirk(slow_head_s=10, slow_body_s=20), times=1)
    reader, writer = await begin(f"{issuer.url}/p/token", refresh_form(grant.refresh_token))
    received = [b""]
    for step_s in (1.0,) * 10 + (2.0,) * 10:
        await clock.wait_sleepers()
        await clock.advance(step_s)
        received.append(received[-1] + await reader.read(4096))
    reply = FetchedResponse(received[-1])
    assert reply.whole
    assert len(set(received)) == 21, "twenty pieces"
    assert not received[9].endswith(b"\r\n\r\n")
    assert received[10].endswith(b"\r\n\r\n")
    assert clock.monotonic() == 1030.0
    writer.close()
    await writer.wait_closed()
    assert judge(issuer.ledger()).lost_answers == 0


@pytest.mark.parametrize(("name", "reached"), [("hang_before", 1), ("hang_after", 2)])
async def test_hanging_ends_when_the_client_leaves(
    issuer: Issuer, grant: IssuedGrant, name: str, reached: int
) -> None:
    issuer.be_rude(name, times=1)
    hold = issuer.hold("arrived")
    _, writer = await begin(f"{issuer.url}/p/token", refresh_form(grant.refresh_token))
    await hold.reached()
    hold.release()
    writer.close()
    await writer.wait_closed()
    await _recorded(issuer, "answered")
    assert generation(issuer) == reached
    (line,) = issuer.ledger().of("answered")
    assert (line.fields["delivered"], "status" in line.fields) == (False, False)


# ---- which requests meet it ------------------------------------------------------------------------


async def test_rules_choose_by_provider_connection_and_number(issuer: Issuer) -> None:
    issuer.play("q", ProviderConfig())
    tokens = {name: issuer.register("p", name).refresh_token for name in ("a", "b")}
    issuer.be_rude("html_400", provider="q")
    issuer.be_rude("html_403", connection="a", times=2)
    statuses = [(await refresh(issuer, tokens[name])).status for name in ("a", "b", "a", "a")]
    assert statuses == [403, 200, 403, 200]


async def test_a_spell_begins_and_ends_by_the_clock(
    issuer: Issuer, grant: IssuedGrant, clock: ManualClock
) -> None:
    issuer.be_rude("rate_limited", start_s=5, for_s=10)
    statuses, token = [], grant.refresh_token
    for _ in range(5):
        reply = await refresh(issuer, token)
        statuses.append(reply.status)
        if reply.status == 200:
            token = str(reply.json["refresh_token"])
        await clock.advance(4)
    assert statuses == [200, 200, 429, 429, 200], "at 0, 4, 8, 12 and 16 s"
    assert judge(issuer.ledger()).violations == ()


async def test_chance_comes_from_the_seed() -> None:
    async def statuses(seed: int) -> list[int]:
        config = IssuerConfig(seed=seed, providers={"p": ProviderConfig.model_validate({"policy": "stable"})})
        async with Issuer(config) as issuer:
            token = issuer.register("p", "acme").refresh_token
            issuer.be_rude("status_503", probability=0.5)
            return [(await refresh(issuer, token)).status for _ in range(40)]

    first, again, other = [await statuses(seed) for seed in (1, 1, 2)]
    assert first == again != other
    assert 8 <= first.count(503) <= 32


async def test_quirks_add_up_and_the_older_rule_wins(issuer: Issuer, grant: IssuedGrant) -> None:
    issuer.be_rude("expires_in_zero")
    issuer.be_rude("expires_in_negative")
    issuer.be_rude("odd_token_type")
    body = (await refresh(issuer, grant.refresh_token)).json
    assert (body["expires_in"], body["token_type"]) == (0, "urn:odd")


async def test_a_rule_can_be_taken_back(issuer: Issuer, grant: IssuedGrant) -> None:
    number = issuer.be_rude("html_400")
    assert (await refresh(issuer, grant.refresh_token)).status == 400
    issuer.be_polite(number)
    assert (await refresh(issuer, grant.refresh_token)).status == 200
    issuer.be_rude("html_403")
    issuer.be_polite()
    assert (await refresh(issuer, issuer.grant("p", "acme").refresh_token)).status == 200


async def test_revoke_and_resource_can_be_rude_too(issuer: Issuer, grant: IssuedGrant) -> None:
    issuer.be_rude("status_503", endpoint="revoke", times=1)
    issuer.be_rude("rate_limited", endpoint="resource", times=1)
    bearer = {"Authorization": f"Bearer {grant.access_token}"}
    for status, revoke in ((429, 503), (200, 200)):
        assert (await fetch(f"{issuer.url}/p/resource", None, bearer)).status == status
        assert (await fetch(f"{issuer.url}/p/revoke", {"token": grant.refresh_token})).status == revoke
    assert issuer.grant("p", "acme").revoked == "revoke endpoint"


@pytest.mark.parametrize("name", sorted(QUIRKS))
async def test_after_any_quirk_the_issuer_is_sane(name: str) -> None:
    providers = {"p": ProviderConfig.model_validate({"policy": "strict"})}
    async with Issuer(IssuerConfig(providers=providers), clock=ManualClock(autojump_s=0)) as issuer:
        grant = issuer.register("p", "acme")
        issuer.be_rude(name, times=1)
        hold = issuer.hold("arrived")
        _, writer = await begin(f"{issuer.url}/p/token", refresh_form(grant.refresh_token))
        await hold.reached()
        hold.release()
        if "hang" not in name:
            await _recorded(issuer, "answered")
        writer.close()
        await writer.wait_closed()
        await _recorded(issuer, "answered")
        live = issuer.grant("p", "acme")
        assert live.generation in (1, 2)
        assert (await refresh(issuer, live.refresh_token)).status == 200
        assert issuer.grant("p", "acme").generation == live.generation + 1


async def _recorded(issuer: Issuer, event: str) -> None:
    async with asyncio.timeout(5):
        while not any(issuer.ledger().of(event)):
            await asyncio.sleep(0.002)
