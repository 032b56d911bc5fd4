"""Addresses that cannot be bent to another host, whatever a value holds (V8, V9, F9, S01)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInputError
from fairlead.policy.providers.endpoint import InvalidEndpointError, checked_value, parse_template
from fairlead.policy.providers.profile_load import load_profiles

PROFILES = load_profiles()

SHOPS_V9 = [
    "evil.com/#", "evil.com#", "evil.com?", "a@evil.com/", "evil.com:443/", "evil.com\\", "shop\n",
    "shop\r\n", "\tshop", " shop", "shop ", "", ".", "..", "a.b", "shop.", "shop%2eevil", "shop%",
    "shop\u3002evil", "sh\u00f6p", "\u212aelvin", "shop:22", "[::1]", "127.0.0.1", "127.1", "localhost.",
    "169.254.169.254", "-shop", "shop-", "a" * 64, "A" * 2**20, "shop\0", "{t}", "}", "*", "a_b", "a/b",
    "my-shop.myshopify.com.", "my-shop.myshopify.com.evil.com", "evil.com/.myshopify.com", "\u0441hop",
    "shop\u200f", "metadata.google.internal",
]  # fmt: skip


@pytest.mark.parametrize("shop", SHOPS_V9)
def test_no_value_leads_to_another_host(shop: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        PROFILES["shopify"].url("token", {"shop": shop})
    assert caught.value.provider == "shopify"
    assert "for example my-shop" in str(caught.value)
    if len(shop) > 4:
        assert shop not in caught.value.message


@given(st.text(max_size=80) | st.text("aZ09.-_/\\@:#?%[]{}\n \u3002", max_size=30))
def test_accepted_value_stays_at_its_host(value: str) -> None:
    for name, param, ending in (
        ("shopify", "shop", ".myshopify.com"),
        ("salesforce", "domain", ".salesforce.com"),
    ):
        try:
            url = PROFILES[name].url("token", {param: value})
        except InvalidInputError:
            continue
        parts = urlsplit(url)
        assert parts.scheme == "https"
        assert parts.hostname == parts.netloc
        assert str(parts.hostname).endswith(ending)
        assert parts.path == urlsplit(str(PROFILES[name].endpoints.token)).path


@pytest.mark.parametrize(
    ("name", "values", "host"),
    [
        ("shopify", {"shop": "My-Shop.myshopify.com"}, "my-shop.myshopify.com"),
        ("shopify", {"shop": "0"}, "0.myshopify.com"),
        ("netsuite", {"account": "123456_SB1"}, "123456-sb1.suitetalk.api.netsuite.com"),
        ("salesforce", {}, "login.salesforce.com"),
        (
            "salesforce",
            {"domain": "acme--uat.sandbox.my.salesforce.com"},
            "acme--uat.sandbox.my.salesforce.com",
        ),
        ("generic_oauth2", {"host": "Login.Example.COM"}, "login.example.com"),
    ],
)
def test_canonical_values_make_the_host(name: str, values: dict[str, str], host: str) -> None:
    assert urlsplit(PROFILES[name].url("token", values)).netloc == host


HOSTS_V9 = [
    "127.0.0.1", "127.1", "0", "0x7f000001", "0x7f.0x1", "2130706433", "1.2.3.4", "[::1]", "localhost",
    "localhost.", "a.localhost", "metadata.google.internal", "printer.local", "evil.com:443",
    "user@evil.com", "evil.com\\x", "evil\u3002com", "evil.com.", "evil.com/", "1.0x7f",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS_V9)
def test_a_full_host_is_a_public_name(host: str) -> None:
    with pytest.raises(InvalidInputError):
        PROFILES["generic_oauth2"].url("token", {"host": host})


@pytest.mark.parametrize(
    "path", ["..", "a/../b", "a//b", "/a", "a?b", "a#b", "a%2e", "a b", "", "a/.", "a\\b"]
)
def test_a_path_value_stays_a_path(path: str) -> None:
    with pytest.raises(InvalidInputError):
        PROFILES["generic_oauth2"].url("token", {"host": "login.example.com", "token_path": path})


@pytest.mark.parametrize(
    ("template", "allow_http", "expected"),
    [
        ("http://a.example/t", False, "not https"),
        ("https://a.example:8443/t", False, "port"),
        ("https://a.example/t?x=1", True, "without user, query"),
        ("https://u@a.example/t", True, "without user"),
        ("https://{label}/t", False, "ends its host"),
        ("https://a.{label}/t", False, "ends its host"),
        ("https://{path}.example/t", False, "kind path or segment in its host"),
        ("https://a.example/{host}", False, "kind host or subdomain in its path"),
        ("https://{nobody}.example/t", False, "not declared"),
        ("https://A.example/t", False, "character"),
        ("ftp://a.example/t", True, "https://host/path"),
        ("https://a.example/t\n", True, "https://host/path"),
        ("https://{label.__class__}.example/t", True, "character"),
    ],
)
def test_a_template_is_checked_when_it_is_loaded(template: str, allow_http: bool, expected: str) -> None:
    kinds: dict[str, Any] = {"label": "label", "path": "path", "host": "host"}
    with pytest.raises(InvalidEndpointError, match=expected):
        parse_template(template, kinds, allow_http=allow_http)


def test_a_long_value_costs_no_time() -> None:
    with pytest.raises(InvalidEndpointError):
        checked_value("host", "a-" * 120 + "!")


def test_unknown_and_missing_parameters_are_named() -> None:
    shopify = PROFILES["shopify"]
    with pytest.raises(InvalidInputError, match="this provider has: api_version, shop"):
        shopify.endpoint_values({"store": "x"})
    with pytest.raises(InvalidInputError, match="'shop' is missing"):
        shopify.endpoint_values({})
    assert shopify.endpoint_values({"shop": "My-Shop"})["shop"] == "my-shop"
    with pytest.raises(InvalidInputError, match="no revoke endpoint is known"):
        PROFILES["stripe"].url("revoke", {})


@pytest.mark.parametrize("value", ["My-Shop.myshopify.com", "my-shop", "MY-SHOP"])
def test_account_has_one_canonical_name(value: str) -> None:
    assert PROFILES["shopify"].canonical_account(value) == "my-shop"


@pytest.mark.parametrize("raw", ["", " ", "a\n\0", "x" * 201])
def test_an_account_id_that_is_no_name_is_refused(raw: str) -> None:
    with pytest.raises(InvalidInputError):
        PROFILES["mercadolibre"].canonical_account(raw)
