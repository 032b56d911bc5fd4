"""S29: the app's secret goes to no host that a tenant names, and what a tenant's host does concerns no other.

The profile leaves the whole host and the realm to who connects, as ``generic_oauth2`` does; here the host is
``localhost``, with the issuer's port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from fairlead._core.secret import Secret
from fairlead.assembly.config import load
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.account import Accounts
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.engine.tokens.consent import Consents
from fairlead.engine.tokens.deps import AppCredential
from fairlead.engine.tokens.grants import Grants
from fairlead.errors import (
    EndpointPausedError,
    EndpointUnavailableError,
    FairleadError,
    InvalidConfigError,
    NotSentError,
    RequestRejectedError,
)
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.testing.issuer import Issuer
from tests.security.conftest import PROVIDERS
from tests.support.refresher import APP, FAST, Refresher, local_profile

PROVIDER = "open"
FIRST, TWO = PROVIDERS
HERE = "http://127.0.0.1:8931/callback"
INVALID = {"status": 401, "body": '{"error":"invalid_client"}', "content_type": "application/json"}


def open_profile(issuer: Issuer, **more: object) -> Profile:
    port = urlsplit(issuer.url).port
    urls = {endpoint: f"http://{{where}}:{port}/{{realm}}/{endpoint}" for endpoint in ("token", "authorize")}
    params = {
        "where": {"description": "its host"},
        "realm": {"description": "its realm", "kind": "path", "default": FIRST},
    }
    return local_profile(
        issuer.url,
        "strict",
        PROVIDER,
        endpoints={**urls, "params": params},
        revoke={"url": f"http://{{where}}:{port}/{{realm}}/revoke", "authenticates": "client"},
        **more,
    )


@pytest.fixture
def profiles(honest: Issuer, other: Issuer) -> dict[str, Profile]:
    return {PROVIDER: open_profile(honest)}


def at(realm: str = FIRST) -> Mapping[str, str]:
    return {"where": "localhost", "realm": realm}


def name_host(fl: Refresher, *hosts: str) -> None:
    fl.deps.apps.credential = replace(APP, hosts=frozenset(hosts))  # type: ignore[attr-defined]


async def connect(fl: Refresher, issuer: Issuer, tenant: str, realm: str = FIRST, **more: object) -> UUID:
    tokens = issuer.register(realm, tenant, account_id=f"account-{tenant}")
    grant = Grant(Secret(tokens.access_token), Secret(tokens.refresh_token), endpoint=at(realm))
    key = ConnectionKey(tenant, PROVIDER)
    return (await fl.connections.upsert(key, replace(grant, **more), actor="test")).connection_id  # type: ignore[arg-type]


def request_count(issuer: Issuer) -> int:
    return sum(1 for _ in issuer.ledger().of("arrived"))


def is_clear(refusal: FairleadError, tenant: str) -> bool:
    named = (refusal.tenant, refusal.provider, refusal.category)
    hint = refusal.hint or ""
    return named == (tenant, PROVIDER, "permanent_config") and f"[providers.{PROVIDER}] hosts" in hint


async def test_S29_no_consent_and_no_connection_lends_the_secret_to_a_host_of_the_tenants(
    fl: Refresher, honest: Issuer
) -> None:
    consents = Consents(fl.deps, fl.connections)
    with pytest.raises(InvalidConfigError) as refused:
        consents.begin(ConnectionKey("mallory", PROVIDER), redirect_uri=HERE, endpoint=at())
    assert is_clear(refused.value, "mallory")
    with pytest.raises(InvalidConfigError) as refused:
        await connect(fl, honest, "mallory")
    assert is_clear(refused.value, "mallory")
    assert request_count(honest) == 0


async def test_S29_setting_of_an_older_version_is_refused_before_anything_is_sent(
    fl: Refresher, honest: Issuer
) -> None:
    """The settings named the host then, or a version stored it that asked nobody."""
    name_host(fl, "localhost")
    connection_id = await connect(fl, honest, "mallory")
    consents = Consents(fl.deps, fl.connections)
    _, consent = consents.begin(ConnectionKey("bolt", PROVIDER), redirect_uri=HERE, endpoint=at())
    name_host(fl, "localhost.example.com", "example.com")
    with pytest.raises(InvalidConfigError) as refused:
        await fl.coordinator.refresh(connection_id, 1)
    assert is_clear(refused.value, "mallory")
    with pytest.raises(InvalidConfigError) as refused:
        await consents.finish(consent, {"state": consent.state.reveal(), "code": "c"}, actor="test")
    assert is_clear(refused.value, "bolt")
    accounts = Accounts(fl.deps, Grants(fl.deps, FAST), fl.settler, fl.reader, fl.connections)
    key = ConnectionKey("mallory", PROVIDER)
    _, there = await accounts.revoke(key, actor="test", reason="asked for")
    assert "gets no secret" in there
    assert request_count(honest) == 0


async def test_S29_a_host_that_the_settings_name_gets_it_and_an_own_app_asks_nobody(
    fl: Refresher, honest: Issuer
) -> None:
    own_id = await connect(fl, honest, "acme", client_secret=Secret("own"))
    await fl.coordinator.refresh(own_id, 1)
    name_host(fl, "localhost")
    lent = await connect(fl, honest, "bolt")
    await fl.coordinator.refresh(lent, 1)
    assert request_count(honest) == 2


def test_S29_a_key_signs_for_no_host_of_a_tenant() -> None:
    from fairlead.engine.tokens.secret_hosts import check_secret_host

    signs = load_profiles()["netsuite"].variant("m2m")
    host = {"description": "its host", "kind": "host"}
    astray = signs.overlay({"endpoints": {"token": "https://a.{at}/t", "params": {"at": host}}})
    key, app = ConnectionKey("mallory", "netsuite"), AppCredential("app", private_key=Secret("pem"))
    with pytest.raises(InvalidConfigError):
        check_secret_host(astray, "token", {"at": "evil.example", "account": "1"}, app, key)
    check_secret_host(signs, "token", {"account": "1"}, app, key)


def test_S29_generic_profile_alone_lets_a_tenant_choose_the_host() -> None:
    hosts = set()
    for name, profile in load_profiles().items():
        values = {n: param.default or str(param.example) for n, param in profile.endpoints.params.items()}
        if "connection_domain" in {
            profile.host_control(endpoint, values) for endpoint in ("token", "authorize", "revoke")
        }:
            hosts.add(name)
    assert hosts == {"generic_oauth2"}


# ---- what a tenant's host does


async def test_S29_a_refusal_of_one_place_pauses_no_other(fl: Refresher, honest: Issuer) -> None:
    name_host(fl, "localhost")
    theirs, ours = await connect(fl, honest, "mallory", TWO), await connect(fl, honest, "acme", FIRST)
    honest.be_rude(INVALID, provider=TWO)
    with pytest.raises(RequestRejectedError):
        await fl.coordinator.refresh(theirs, 1)
    assert (await fl.coordinator.refresh(ours, 1)).generation == 2
    with pytest.raises(EndpointPausedError):
        await fl.coordinator.refresh(await connect(fl, honest, "bolt", TWO), 1)


async def test_S29_an_outage_of_one_place_opens_no_breaker_of_another(fl: Refresher, honest: Issuer) -> None:
    name_host(fl, "localhost")
    theirs = [await connect(fl, honest, f"mallory{number}", TWO) for number in range(FAST.breaker_failures)]
    honest.be_rude({"status": 503}, provider=TWO)
    for connection_id in theirs:
        with pytest.raises(FairleadError):
            await fl.coordinator.refresh(connection_id, 1)
    with pytest.raises(EndpointUnavailableError):
        await fl.coordinator.refresh(await connect(fl, honest, "bolt", TWO), 1)
    assert (await fl.coordinator.refresh(await connect(fl, honest, "acme", FIRST), 1)).generation == 2


async def test_S29_hosts_have_keys_of_their_own_and_a_vendor_has_one(fl: Refresher, honest: Issuer) -> None:
    grants, built_in = Grants(fl.deps, FAST), load_profiles()
    credential = await fl.deps.store.read_id(await connect(fl, honest, "acme", client_secret=Secret("own")))
    assert credential is not None

    def keys(provider: str, **endpoint: str) -> set[str]:
        there = replace(credential, connection=replace(credential.connection, endpoint=endpoint))
        profile = built_in[provider]
        key, _ = grants.endpoint(profile, there, APP)
        return {key.client_id, key.health_key}

    assert keys("generic_oauth2", host="good.example") == {"app good.example/oauth/token"}
    assert keys("generic_oauth2", host="evil.example") == {"app evil.example/oauth/token"}
    assert keys("salesforce", domain="acme.my") == {"app", "app acme.my.salesforce.com"}, "one app, two hosts"
    assert keys("salesforce", domain="login") == {"app", "app login.salesforce.com"}
    assert keys("google") == {"app"}


async def test_S29_a_name_that_is_none_counts_against_nobody_else(fl: Refresher, honest: Issuer) -> None:
    fl.deps.profiles.profiles[PROVIDER] = local_profile(  # type: ignore[attr-defined]
        honest.url,
        "strict",
        PROVIDER,
        endpoints={
            "token": "http://{shop}.vendor.invalid:1/token",
            "params": {"shop": {"description": "its shop", "default": "usual"}},
        },
    )
    grant = Grant(Secret("at"), Secret("rt"), endpoint={"shop": "nosuch"})
    view = await fl.connections.upsert(ConnectionKey("mallory", PROVIDER), grant, actor="test")
    with pytest.raises(NotSentError):
        await fl.coordinator.refresh(view.connection_id, 1)
    failures_by_client = {str(row["client_id"]): row["failures"] for row in await fl.deps.gate.search()}
    assert failures_by_client == {"app": 0, "app nosuch.vendor.invalid:1": 1}


async def test_S29_an_own_secret_that_is_refused_ends_no_pause_of_the_shared_one(
    fl: Refresher, honest: Issuer
) -> None:
    name_host(fl, "localhost")
    shared = [await connect(fl, honest, tenant) for tenant in ("acme", "bolt", "cord")]
    own_id = await connect(fl, honest, "mallory", client_secret=Secret("own"))
    rule = honest.be_rude(INVALID)
    for connection_id in (shared[0], own_id):
        with pytest.raises(RequestRejectedError):
            await fl.coordinator.refresh(connection_id, 1)
    with pytest.raises(EndpointPausedError):
        await fl.coordinator.refresh(shared[1], 1)
    arrived = request_count(honest)
    honest.be_polite(rule)
    with pytest.raises(EndpointPausedError):
        await fl.coordinator.refresh(shared[2], 1)
    assert request_count(honest) == arrived
    assert {row["state"] for row in await fl.deps.gate.search()} == {"paused"}
    await connect(fl, honest, "mallory", client_secret=Secret("mended"))
    assert (await fl.coordinator.refresh(own_id, 2)).generation == 3
    with pytest.raises(EndpointPausedError):
        await fl.coordinator.refresh(shared[2], 1)
    assert (await state_of(fl, "app localhost"))["state"] == "paused", "and people still see it"


async def state_of(fl: Refresher, start: str) -> Mapping[str, object]:
    return next(row for row in await fl.deps.gate.search() if str(row["client_id"]).startswith(start))


def test_S29_the_hosts_of_an_app_are_exact_names() -> None:
    apps = {"FAIRLEAD_PROVIDERS__GENERIC_OAUTH2__HOSTS": "login.example.com, sso.example.org"}
    settings = load(environ=apps).settings
    assert settings.providers["generic_oauth2"].hosts == ("login.example.com", "sso.example.org")
    for wrong in ("*.example.com", "https://a.example", "a.example:8443", "a.example/x", "A.example", "a..b"):
        with pytest.raises(InvalidConfigError, match="hosts"):
            load(environ={"FAIRLEAD_PROVIDERS__GENERIC_OAUTH2__HOSTS": wrong})
