"""S29: on the way to a token endpoint no secret stands in an address, and no redirect is followed."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, quote_plus, urlsplit
from uuid import UUID

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy, AiohttpTokenTransport
from fairlead.engine.ports import ConnectionKey, TokenCall
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.engine.tokens.consent import Consents
from fairlead.errors import FairleadError, InvalidInputError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.request import (
    OAuthClient,
    TokenRequest,
    code_request,
    revoke_request,
    token_request,
)
from fairlead.policy.tokens.token import TokenSet
from fairlead.testing.issuer import Issuer
from fairlead.testing.ledger import judge
from tests.contract.raw_server import RawServer, send_once
from tests.contract.token_calls import let_it_go
from tests.security.conftest import PROVIDERS
from tests.security.figures import tell
from tests.security.test_S28_consent import begin, consented
from tests.support.refresher import Refresher, local_profile

LOCAL = AddressPolicy(allow_private=True)
CANARIES = [f"canary{name}+/=&?" for name in ("secret", "refresh", "access", "code", "verifier", "assertion")]
SECRET, REFRESH, ACCESS, CODE, VERIFIER, ASSERTION = map(Secret, CANARIES)
TOKENS = TokenSet(ACCESS, REFRESH, account_id="account")
CLIENT, BACK = OAuthClient("app", SECRET), "https://a.example/"


def requests_of(profile: Profile) -> Iterator[TokenRequest]:
    """Every request to the provider's own endpoints that holds a secret."""
    values = {name: param.default or str(param.example) for name, param in profile.endpoints.params.items()}
    makers = (
        lambda: token_request(profile, values, CLIENT, refresh_token=REFRESH, assertion=ASSERTION),
        lambda: code_request(profile, values, CLIENT, code=CODE, redirect_uri=BACK, code_verifier=VERIFIER),
        lambda: revoke_request(profile, values, CLIENT, TOKENS),
    )
    for make in makers:
        try:
            yield make()
        except InvalidInputError:
            continue


def spellings(secret: str) -> set[str]:
    return {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}


async def test_S29_no_request_line_holds_a_secret() -> None:
    sent = found_count = 0
    profiles = load_profiles().values()
    async with RawServer() as server, AiohttpTokenTransport(policy=LOCAL) as transport:
        for profile in (
            profile_of for base in profiles for profile_of in (base, *map(base.variant, base.variants))
        ):
            for request in requests_of(profile):
                parts = urlsplit(request.url)
                url = parts._replace(scheme="http", netloc=f"127.0.0.1:{server.port}").geturl()
                call = TokenCall(url, request.headers, request.form, 5.0, True, method=request.method)
                await transport.send(call, let_it_go)
                line = server.arrivals[sent].partition(b"\r\n")[0].decode()
                found_count += sum(spelt in line for secret in CANARIES for spelt in spellings(secret))
                sent += 1
    assert sent > 20
    assert found_count == 0
    tell("S29", n=sent, secrets_in_query=found_count)


async def test_S29_by_the_ledger_of_the_issuer(fl: Refresher, honest: Issuer) -> None:
    """Connect, refresh, consent, revoke: nothing came in a query, and nobody followed anything."""
    connection_id = await fl.connect(honest, PROVIDERS[0])
    for generation in (1, 2, 3):
        await fl.coordinator.refresh(connection_id, generation)
    consents = Consents(fl.deps, fl.connections)
    page, consent = begin(consents, tenant="bolt")
    await consents.finish(consent, await consented(page), actor="test")
    ledger = honest.ledger()
    assert sum(1 for _ in ledger.of("arrived")) == 4
    assert not [entry for entry in ledger.of("arrived") if entry.fields.get("query")]
    verdict = judge(ledger)
    assert (verdict.in_url, verdict.strays) == (0, 0)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_S29_a_redirect_of_a_token_endpoint_is_refused(
    fl: Refresher, other: Issuer, status: int
) -> None:
    """The refresh token goes nowhere else, and what it led to is no answer."""
    moved = (
        f"HTTP/1.1 {status} Moved\r\nLocation: {other.url}/two/token\r\nContent-Length: 0\r\n\r\n".encode()
    )
    async with RawServer(send_once(moved)) as server:
        fl.deps.profiles.profiles["moved"] = local_profile(  # type: ignore[attr-defined]
            server.url, name="moved", endpoints={"token": server.url}
        )
        connection_id = await connected(fl)
        with pytest.raises(FairleadError):
            await fl.coordinator.refresh(connection_id, 1)
        assert len(server.arrivals) == 1
    assert sum(1 for _ in other.ledger().of("arrived")) == 0


async def connected(fl: Refresher) -> UUID:
    grant = Grant(Secret("at"), Secret("rt"), expires_in_s=3600.0)
    view = await fl.connections.upsert(ConnectionKey("acme", "moved"), grant, actor="test")
    return view.connection_id
