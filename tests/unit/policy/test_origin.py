"""Where a credential may go (V9, C10)."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fairlead.errors import InvalidConfigError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_calls import resolve_allowed_origins
from fairlead.policy.providers.origin import AllowedOrigins, allowed_origins, origin_of
from fairlead.policy.providers.profile_load import load_profiles

PROFILES = load_profiles()
HERE = allowed_origins(
    ["https://api.example.com/v1"], ["files.example.com", "*.cdn.example.com", "odd.example.com:8443"]
)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://api.example.com/items?x=1", "api.example.com"),
        ("https://api.example.com", "api.example.com"),
        ("https://API.Example.com/", "api.example.com"),
        ("https://api.example.com:443/", "api.example.com"),
        ("https://files.example.com/a", "files.example.com"),
        ("https://a.b.cdn.example.com/a", "a.b.cdn.example.com"),
        ("https://odd.example.com:8443/", "odd.example.com"),
        ("https://odd.example.com/", None),
        ("https://cdn.example.com/a", None),
        ("https://evilcdn.example.com/a", None),
        ("http://api.example.com/items", None),
        ("http://files.example.com/items", None),
        ("https://api.example.com:444/", None),
        ("https://api.example.com./", None),
        ("https://api.example.com@evil.com/", None),
        ("https://evil.com/https://api.example.com/", None),
        ("https://evil.com#https://api.example.com/", None),
        ("https://api.example.com\\.evil.com/", None),
        ("https://api.example.com%2eevil.com/", None),
        ("https://api.example.com。evil.com/", None),
        ("https://evil.com\n.api.example.com/", None),
        ("https://[::1]/", None),
        ("https://2130706433/", None),
        ("//api.example.com/", None),
        ("ftp://api.example.com/", None),
        ("", None),
    ],
)
def test_a_call_goes_to_its_provider_and_to_what_is_allowed(url: str, host: str | None) -> None:
    for _ in range(2):  # asked again it is known
        assert HERE.host_of(url) == host


def test_on_one_machine_ports_are_open() -> None:
    here = AllowedOrigins(frozenset(), ("127.0.0.1",), open_ports=True)
    assert here.host_of("http://127.0.0.1:8080/x") == "127.0.0.1"
    assert here.host_of("http://127.0.0.2:8080/x") is None


def test_url_without_a_usable_host_has_no_origin() -> None:
    assert origin_of("https:///x") is None
    assert origin_of("https://user:pass@api.example.com/") is None


@pytest.mark.parametrize(
    ("provider", "endpoint", "good", "bad"),
    [
        (
            "shopify",
            {"shop": "acme"},
            "https://acme.myshopify.com/admin/x",
            "https://evil.myshopify.com/admin/x",
        ),
        (
            "netsuite",
            {"account": "123-sb1"},
            "https://123-sb1.app.netsuite.com/x",
            "https://9.app.netsuite.com/x",
        ),
        ("netsuite", {"account": "123"}, "https://123.restlets.api.netsuite.com/", "https://netsuite.com/"),
        (
            "salesforce",
            {"domain": "acme.my"},
            "https://acme.my.salesforce.com/x",
            "https://evil.salesforce.com/",
        ),
        ("salesforce", {}, "https://acme.my.salesforce.com/x", "https://my.salesforce.com.evil.com/"),
        ("hubspot", {}, "https://api.hubapi.com/crm", "https://hubapi.com/crm"),
    ],
)
def test_the_hosts_of_providers(provider: str, endpoint: dict[str, str], good: str, bad: str) -> None:
    profile = PROFILES[provider]
    origins = resolve_allowed_origins(profile, profile.endpoint_values({**_needed(provider), **endpoint}), ())
    assert origins.host_of(good) is not None
    assert origins.host_of(bad) is None


def _needed(provider: str) -> dict[str, str]:
    return {"shopify": {"shop": "acme"}, "netsuite": {"account": "1"}}.get(provider, {})


@pytest.mark.parametrize(
    "host", ["*", "*.com", "https://a.example.com", "a.example.com/x", "A.example.com", "a b", ""]
)
def test_a_host_that_is_none_or_too_wide_is_refused(host: str) -> None:
    with pytest.raises(ValidationError):
        CallSettings(hosts=(host,))
    if host not in ("A.example.com", ""):
        with pytest.raises(InvalidConfigError):
            PROFILES["stripe"].overlay({"hosts": [host]})
