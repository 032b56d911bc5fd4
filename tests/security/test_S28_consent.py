"""S28: a consent is answered once, by the one who began it, and by the provider that was asked.

Replayed, swapped between sessions, brought from another provider, or led astray: nothing of it is accepted,
and the ledgers of the token endpoints show that no code was told to anybody.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey, TokenCall
from fairlead.engine.tokens.consent import Consent, Consents
from fairlead.engine.tokens.deps import AppCredential
from fairlead.errors import FairleadError, InvalidInputError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.consent import is_other_issuer, is_redirect
from fairlead.testing.issuer import Issuer
from tests.security.conftest import PROVIDERS
from tests.security.figures import tell
from tests.support.altered import alter
from tests.support.issuer import fetch
from tests.support.refresher import APP, Refresher

HERE = "http://127.0.0.1:8931/callback"
BUILT_IN = load_profiles()


@pytest.fixture
def consents(fl: Refresher) -> Consents:
    return Consents(fl.deps, fl.connections)


def begin(consents: Consents, tenant: str = "acme", provider: str = PROVIDERS[0]) -> tuple[str, Consent]:
    return consents.begin(ConnectionKey(tenant, provider), redirect_uri=HERE)


async def consented(page: str) -> dict[str, str]:
    """What the browser brings back from *page*."""
    reply = await fetch(page)
    return dict(parse_qsl(urlsplit(reply.headers["location"]).query))


def request_count(*issuers: Issuer) -> int:
    """Requests that came to their token endpoints."""
    return sum(1 for issuer in issuers for _ in issuer.ledger().of("arrived"))


async def refused(consents: Consents, consent: Consent, answer: Mapping[str, str]) -> int:
    with pytest.raises(InvalidInputError) as raised:
        await consents.finish(consent, answer, actor="test")
    assert not {value for value in answer.values() if len(value) > 8 and value in str(raised.value)}
    return 1


async def test_S28_foreign_or_malformed_callback_is_not_accepted(
    consents: Consents, honest: Issuer, other: Issuer
) -> None:
    """Each attack is refused, and no code leaves. Then each consent is still good for its own answer."""
    (page_a, mine), (page_b, theirs) = begin(consents), begin(consents, tenant="bolt")
    page_c, elsewhere = begin(consents, provider=PROVIDERS[1])
    answers = [await consented(page) for page in (page_a, page_b, page_c)]
    state = answers[0]["state"]
    wrong = [None, "", state[:-1], state + "x", state.swapcase(), state.upper(), "\x00", "\ud800", "ä" * 43]
    bent = [{**answers[0], "state": value} if value is not None else {"code": "c"} for value in wrong]
    refusal_count = 0
    for consent, own_answer in zip((mine, theirs, elsewhere), answers, strict=True):
        foreign = [answer for answer in answers if answer is not own_answer]
        for answer in [
            *foreign,
            *(
                answer_fields
                for answer_fields in bent
                if answer_fields.get("state") != consent.state.reveal()
            ),
        ]:
            refusal_count += await refused(consents, consent, answer)
    assert request_count(honest, other) == 0
    for consent, own_answer in zip((mine, theirs, elsewhere), answers, strict=True):
        await consents.finish(consent, own_answer, actor="test")
        refusal_count += await refused(consents, consent, own_answer)  # a replay
    page, again = begin(consents)
    for answer in (answers[0], {**await consented(page), "state": state}):
        refusal_count += await refused(consents, again, answer)
    assert request_count(honest, other) == 3
    tell("S28", n=refusal_count, accepted=0)


async def test_S28_an_answer_is_counted_once_however_it_ends(consents: Consents, honest: Issuer) -> None:
    page, consent = begin(consents)
    answer = await consented(page)
    await refused(consents, consent, {"state": answer["state"], "error": "access_denied"})
    with pytest.raises(InvalidInputError, match="was received before"):
        await consents.finish(consent, answer, actor="test")
    assert request_count(honest) == 0


async def test_S28_a_code_of_one_provider_is_not_told_to_another(
    consents: Consents, honest: Issuer, other: Issuer
) -> None:
    """Mix-up (RFC 9700 §4.4): the bad provider sends the browser on to the honest one, state and all."""
    page, consent = begin(consents, provider=PROVIDERS[1])
    astray = page.replace(f"{other.url}/two/", f"{honest.url}/one/")
    answer = await consented(astray)
    assert answer["iss"] == honest.url
    with pytest.raises(InvalidInputError, match="from another provider than the one that was asked"):
        await consents.finish(consent, answer, actor="test")
    assert request_count(honest, other) == 0


async def test_S28_the_code_is_bound_to_the_one_who_asked(
    consents: Consents, fl: Refresher, honest: Issuer
) -> None:
    """PKCE: whoever injects a code of another consent into their own gets nothing for it."""
    (page, _), (_, theirs) = begin(consents), begin(consents, tenant="bolt")
    stolen = await consented(page)
    with pytest.raises(FairleadError, match="refused"):
        await consents.finish(theirs, {**stolen, "state": theirs.state.reveal()}, actor="test")
    assert await fl.deps.store.read(theirs.key) is None


async def test_S28_state_verifier_and_challenge(consents: Consents) -> None:
    consents_begun = [begin(consents) for _ in range(1000)]
    assert len({consent.state.reveal() for _, consent in consents_begun}) == len(consents_begun)
    assert len({consent.verifier.reveal() for _, consent in consents_begun}) == len(consents_begun)
    for page, consent in consents_begun:
        query = parse_qs(urlsplit(page).query)
        digest = hashlib.sha256(consent.verifier.reveal().encode()).digest()
        assert query["code_challenge_method"] == ["S256"]
        assert query["code_challenge"] == [base64.urlsafe_b64encode(digest).rstrip(b"=").decode()]
        assert query["redirect_uri"] == [HERE]
        assert min(len(consent.state.reveal()), len(consent.verifier.reveal())) >= 43  # RFC 7636 §4.1
        assert consent.verifier.reveal() not in page
        assert consent.verifier.reveal() not in repr(consent)


@pytest.mark.parametrize(
    "redirect",
    ["http://app.example/callback", "http://127.0.0.1.evil.example/", "https://app.example/cb#part", "",
     "https://user@app.example/cb", "https:///cb", "javascript:alert(1)", "ftp://app.example/cb", "/callback",
     "https://app.example/a b", "https://app.example/\r\nX: y", "https://[::1/cb", "HTTP://evil.example/"],
)  # fmt: skip
async def test_S28_a_code_travels_by_https_or_within_this_host(consents: Consents, redirect: str) -> None:
    with pytest.raises(InvalidInputError, match="redirect"):
        consents.begin(ConnectionKey("acme", PROVIDERS[0]), redirect_uri=redirect)


@pytest.mark.parametrize(
    "redirect",
    [
        HERE,
        "http://localhost/cb",
        "http://[::1]:9/cb",
        "https://app.example/cb?x=1",
        "https://app.example:8443/",
    ],
)
def test_S28_these_are_redirects(redirect: str) -> None:
    assert is_redirect(redirect)


# ---- whose answer it is (RFC 9207)


def values_of(profile: Profile) -> dict[str, str]:
    """The parameters of its addresses, as its own examples have them."""
    params = profile.endpoints.params.items()
    return profile.endpoint_values({name: param.default or str(param.example) for name, param in params})


def asking() -> list[Profile]:
    """The built-in providers with a page of consent."""
    return [profile for profile in BUILT_IN.values() if profile.endpoints.authorize]


@pytest.mark.parametrize("profile", asking(), ids=lambda profile: profile.name)
def test_S28_no_provider_takes_the_answer_of_another(profile: Profile) -> None:
    values = values_of(profile)
    hosts = {urlsplit(profile.url(endpoint, values)).hostname for endpoint in ("authorize", "token")}
    for host in hosts:
        assert not is_other_issuer(profile, values, f"https://{host}")
        assert not is_other_issuer(profile, values, f"https://{host}/realm")
        for bent in (
            f"http://{host}", f"https://{host}:8443", f"https://{host}.evil.example", f"//{host}", "",
            str(host), f"https://evil.example/{host}", f"https://{host}@evil.example", f"https://{host}?x",
            f"https://{host}#x", f"https://x.{host}", f"https://{host}\\@evil.example", f" https://{host}",
        ):  # fmt: skip
            assert is_other_issuer(profile, values, bent), bent
    assert not is_other_issuer(profile, values, None)
    for another in asking():
        issuer = another.url("authorize", values_of(another))
        is_known = urlsplit(issuer).hostname in hosts
        assert is_other_issuer(profile, values, issuer) is not is_known


def test_S28_an_issuer_that_is_stated_is_taken_to_the_letter_and_must_be_there() -> None:
    stated = BUILT_IN["generic_oauth2"].overlay({"endpoints": {"issuer": "https://{host}/realms/one"}})
    values = values_of(stated)
    assert not is_other_issuer(stated, values, "https://login.example.com/realms/one")
    host = "https://login.example.com"
    for issuer_url in (
        None,
        "",
        host,
        f"{host}/realms/two",
        f"{host}/realms/one/",
        f"{host.upper()}/realms/one",
    ):
        assert is_other_issuer(stated, values, issuer_url)
    assert "issuer" not in stated.call_targets  # no credential is sent there


async def test_S28_an_answer_for_another_account_than_was_asked_for_spends_no_code(
    consents: Consents, fl: Refresher, honest: Issuer
) -> None:
    profile = fl.deps.profiles.profile(PROVIDERS[0], None)
    account = {"param": "realm", "callback_param": "realmId"}
    endpoints = {"params": {"realm": {"kind": "segment", "description": "the company", "example": "1"}}}
    fl.deps.profiles.profiles[PROVIDERS[0]] = profile.overlay({"account": account, "endpoints": endpoints})
    page, consent = consents.begin(
        ConnectionKey("acme", PROVIDERS[0]), redirect_uri=HERE, endpoint={"realm": "1"}
    )
    with pytest.raises(InvalidInputError, match="another account"):
        await consents.finish(consent, {**await consented(page), "realmId": "2"}, actor="test")
    assert request_count(honest) == 0


async def test_S28_a_caller_that_goes_away_does_not_lose_the_tokens_of_a_spent_code(
    consents: Consents, fl: Refresher, honest: Issuer
) -> None:
    page, consent = begin(consents)
    hold = honest.hold("answering")
    finishing = asyncio.create_task(consents.finish(consent, await consented(page), actor="test"))
    await hold.reached()
    finishing.cancel()
    await asyncio.wait({finishing})
    hold.release()
    await consents.drain()
    assert finishing.cancelled()
    assert (await fl.connections.get(consent.key)).state == "active"


async def test_S28_a_reconnect_goes_through_the_app_of_its_connection(
    fl: Refresher, consents: Consents, honest: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And tells its secret, not that of the settings; both stay with the connection."""
    own_app = AppCredential("own-app")
    monkeypatch.setattr(
        fl.deps.apps, "app", lambda provider, client_id: APP if client_id in ("", "app") else own_app
    )
    await fl.connect(honest, PROVIDERS[0], client_id="own-app", client_secret=Secret("own-secret"))
    sent, send = list[TokenCall](), fl.deps.transport.send

    async def recording_exchange(call: TokenCall, *more: Any) -> Any:
        sent.append(call)
        return await send(call, *more)

    alter(fl.deps.transport, send=recording_exchange)
    key = ConnectionKey("acme", PROVIDERS[0])
    page, consent = consents.begin(key, redirect_uri=HERE, client_id="own-app")
    assert parse_qs(urlsplit(page).query)["client_id"] == ["own-app"]
    answer = await consented(page)
    assert (await consents.finish(consent, answer, actor="test")).client_id == "own-app"
    assert [call.form["client_secret"] for call in sent] == [Secret("own-secret")]
    stored = await fl.deps.store.read(key)
    assert stored is not None
    assert (await fl.settler.open_secrets(stored)).client_secret == Secret("own-secret")
