"""Rows of foreign files: what they mean, and that no error repeats what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.cli.connections.files import (
    ConnectionEntry,
    OwnRow,
    UnfitRow,
    nango_entry,
    own_entry,
    read_rows,
)
from fairlead.errors import InvalidInputError

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
OURS = {"hubspot", "mercadolibre", "google_mail"}.__contains__


def theirs(**fields: Any) -> Mapping[str, Any]:
    defaults = {
        "connection_id": "c1",
        "provider": "hubspot",
        "provider_config_key": "my-hubspot",
        "credentials": {"type": "OAUTH2", "access_token": "at", "refresh_token": "rt"},
    }
    return {**defaults, **fields}


def nango(row: Mapping[str, Any], tenant_at: str | None = None, **providers: str) -> ConnectionEntry:
    return nango_entry(
        row, NOW, {name.replace("_", "-"): ours for name, ours in providers.items()}, OURS, tenant_at
    )


@pytest.mark.parametrize(
    "text",
    [
        '[{"tenant": "a"}, {"tenant": "b"}]',
        '{"connections": [{"tenant": "a"}, {"tenant": "b"}]}',
        '{"tenant": "a"}\n\n{"tenant": "b"}\n',
        "tenant\na\nb\n",
        " tenant ,scope\na,\nb,\n",
    ],
)
def test_the_same_rows_in_every_form(text: str) -> None:
    _, rows = read_rows(text, "auto")
    assert rows == [{"tenant": "a"}, {"tenant": "b"}]


def test_json_line_is_not_cut_at_u2028() -> None:
    lines = ['{"tenant": "a\u2028b\x85c\u2029d"}', '{"tenant": "e"}']
    form, rows = read_rows("\r\n".join(lines) + "\n", "auto")
    assert (form, rows) == ("json", [{"tenant": "a\u2028b\x85c\u2029d"}, {"tenant": "e"}])


def test_the_form_is_recognised_or_named() -> None:
    assert read_rows("tenant\na", "auto")[0] == "csv"
    assert read_rows('[{"tenant": "a"}]', "auto")[0] == "json"
    assert read_rows(json.dumps([theirs()]), "auto")[0] == "nango"
    assert read_rows('[{"tenant": "a"}]', "nango")[0] == "nango"
    with pytest.raises(InvalidInputError, match="no format"):
        read_rows("", "yaml")


@given(st.text())
def test_no_text_is_more_than_an_error_of_ours(text: str) -> None:
    for form in ("auto", "json", "csv"):
        try:
            read_rows(text, form)
        except InvalidInputError:
            continue


def test_a_row_of_our_own_form() -> None:
    entry = own_entry(
        {
            "tenant": "a",
            "provider": "hubspot",
            "refresh_token": "rt",
            "expires_at": "2026-11-20T13:00:00Z",
            "endpoint": {"shop": "x"},
            "scope": None,
        },
        NOW,
    )
    assert (entry.tenant, entry.account, entry.grant.expires_in_s) == ("a", "default", 3600.0)
    assert entry.grant.refresh_token == Secret("rt")
    past = own_entry({"tenant": "a", "provider": "p", "expires_at": "2026-11-20T11:00:00+00:00"}, NOW)
    assert past.grant.expires_in_s == 0.0


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"provider": "p"}, "tenant is missing"),
        ({"tenant": "a"}, "provider is missing"),
        ({"tenant": 7, "provider": "p"}, "tenant is not text"),
        ({"tenant": "a", "provider": "p", "refresh_token": 7}, "refresh_token is no text"),
        ({"tenant": "a", "provider": "p", "secret": "canary"}, "'secret' is no field"),
        ({"tenant": "a", "provider": "p", "endpoint": "canary"}, "endpoint is not a table"),
        ({"tenant": "a", "provider": "p", "expires_in_s": "canary"}, "expires_in_s is not a number"),
        ({"tenant": "a", "provider": "p", "expires_at": "canary"}, "expires_at is no time"),
        ({"tenant": "a", "provider": "p", "expires_at": "2026-11-20T13:00:00"}, "no time zone"),
    ],
)
def test_a_bad_row_is_named_and_not_repeated(row: Mapping[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected) as caught:
        own_entry(row, NOW)
    assert "canary" not in str(caught.value)


def test_nango_names_are_found_or_mapped() -> None:
    assert nango(theirs()).provider == "hubspot"
    assert nango(theirs(provider="google-mail", provider_config_key="x")).provider == "google_mail"
    assert nango(theirs(provider="mercado-libre")).provider == "mercadolibre"
    assert (
        nango(theirs(provider="crm", provider_config_key="crm-prod"), crm_prod="hubspot").provider
        == "hubspot"
    )
    with pytest.raises(InvalidInputError, match="no profile") as caught:
        nango(theirs(provider="crm", provider_config_key="crm-prod"))
    assert "--map-provider" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "tenant"),
    [
        ({}, "c1"),
        ({"end_user": {"id": "u1"}}, "u1"),
        ({"end_user": {"id": "u1", "organization": {"id": "org"}}}, "org"),
        ({"end_user": None, "connection_id": 17}, "17"),
    ],
)
def test_the_tenant_of_a_nango_connection(fields: Mapping[str, Any], tenant: str) -> None:
    assert nango(theirs(**fields)).tenant == tenant


def test_the_tenant_may_be_anywhere() -> None:
    assert nango(theirs(metadata={"customer": "acme"}), "metadata.customer").tenant == "acme"
    with pytest.raises(InvalidInputError, match="names no tenant"):
        nango(theirs(), "metadata.customer")


def test_nango_credentials() -> None:
    key = nango(theirs(credentials={"type": "API_KEY", "apiKey": "canary"}))
    assert key.grant.api_key == Secret("canary")
    token = nango(theirs(credentials={**theirs()["credentials"], "expires_at": "2026-11-20T12:10:00.000Z"}))
    assert token.grant.expires_in_s == 600.0
    for credentials, expected in (
        ({"type": "OAUTH1", "oauth_token": "canary"}, "'OAUTH1' are not supported"),
        (None, "has no credentials"),
    ):
        with pytest.raises(InvalidInputError, match=expected) as caught:
            nango(theirs(credentials=credentials))
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("token", ["APP_USR-canary", "canary", "eyJ.canary.x", "canary_of_the_secret"])
def test_where_the_head_line_is_missing_no_secret_is_repeated(token: str) -> None:
    """What stands first is taken for the names then."""
    _, rows = read_rows(f"acme,mercadolibre,{token}\nglobex,mercadolibre,other\n", "csv")
    with pytest.raises(InvalidInputError, match="are names missing") as error:
        own_entry(rows[0], NOW)
    assert "canary" not in str(error.value)


def test_the_state_of_an_exported_connection_is_read_and_nothing_else() -> None:
    row = {"tenant": "acme", "provider": "hubspot", "state": "revoked", "state_reason": "left"}
    entry = own_entry(row, NOW)
    assert (entry.grant.state, entry.grant.state_reason) == ("revoked", "left")
    assert own_entry({**row, "state": None}, NOW).grant.state == "active"
    with pytest.raises(InvalidInputError, match="the state is not one of"):
        own_entry({**row, "state": "Revoked"}, NOW)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def _row(**fields: Any) -> dict[str, Any]:
    return {"tenant": "a", "provider": "hubspot", "api_key": "k", **fields}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (_row(endpoint={"shop": 5}), "a value in the endpoint is not text"),
        (_row(endpoint={"shop": ["a"]}), "a value in the endpoint is not text"),
        (_row(endpoint={f"p{number}": "x" for number in range(33)}), "the endpoint is invalid"),
        (_row(expires_in_s=[1]), "the expires_in_s is not a number"),
        (_row(expires_in_s=10**400), "the expires_in_s is not a number"),
        (_row(expires_in_s=float("nan")), "the expires_in_s is not a number"),
        (_row(expires_at=5), "the expires_at is not text"),
        (_row(api_key=5), "the api_key is no text"),
        (_row(settings=[1]), "the settings is not a table"),
        (_row(account_id="\0"), "the account_id is invalid"),
        (_row(client_id="\ud800"), "the client_id is not valid text"),
        (_row(scope="x" * 10_001), "the scope is too long"),
        (_row(variant=["a"]), "the variant is not text"),
        (_row(state="new"), "the state is not one of active"),
        ({}, "the tenant is missing"),
    ],
)
def test_a_row_of_wrong_types_is_an_error_of_ours(row: Mapping[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        own_entry(row, NOW)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(sorted(OwnRow.model_fields)), JSON_VALUES, max_size=4))
def test_no_row_is_more_than_an_error_of_ours(row: Mapping[str, Any]) -> None:
    for read in (lambda: own_entry(row, NOW), lambda: nango(theirs(**row))):
        try:
            read()
        except InvalidInputError:
            continue


@pytest.mark.parametrize(
    "text",
    [
        '[{"tenant": "a", "tenant": "b", "provider": "p"}, {"tenant": "last"}]',
        '[{"tenant": "a", "settings": {"x": 1, "x": 2}}, {"tenant": "last"}]',
        "tenant,provider\na\nlast,p\n",
        "tenant,endpoint,endpoint.shop\na,b,c\nlast,,\n",
        "tenant,tenant.x\na,b\nlast,\n",
        *(f'[{odd}, {{"tenant": "last"}}]' for odd in ('"junk"', "7", "null", "[]")),
        *(
            f'{odd}\n{{"tenant": "last"}}'
            for odd in ("null", "no, JSON", '{"tenant": "a"', '{"a":' * 100_000)
        ),
    ],
)
def test_a_row_that_cannot_be_read_stops_no_other(text: str) -> None:
    _, rows = read_rows(text, "auto")
    assert [isinstance(row, UnfitRow) for row in rows] == [True, False]
    assert rows[1]["tenant"] == "last"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tenant,provider,tenant\na,p,b\n", "two columns"),
        ('tenant,provider\na,p\n"b,p\n', "after line 2"),
        ("[" * 100_000, "line 1"),
        ('[{"tenant": "a"},\n{"tenant"},\n{"tenant": "b"}]', "line 2"),
        ('{"connections": [\n{"tenant": "a"},\n{"tenant"}]}', "line 3"),
    ],
)
def test_a_file_that_says_two_things_or_has_no_end_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        read_rows(text, "auto")
