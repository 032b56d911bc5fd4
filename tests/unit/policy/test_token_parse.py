"""Hostile and merely odd answers of token endpoints (V4, V7): read or refused, never raised."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.outcome import Granted, classify_token_response
from fairlead.policy.tokens.parse import TokenResponse, parse_token_response
from fairlead.policy.tokens.token import (
    PublicToken,
    TokenSet,
    account_mismatch,
    merge,
    sanitise,
    token_set_from_record,
    token_set_to_record,
)

PROFILES = load_profiles()
XERO = PROFILES["xero"]
SENT_AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def _body(**fields: Any) -> bytes:
    return json.dumps({"access_token": "at-1", "refresh_token": "rt-1", **fields}).encode()


def _raw(life: str) -> bytes:
    return b'{"access_token": "at-1", "expires_in": ' + life.encode() + b"}"


def _granted(body: bytes, profile: str = "xero") -> Granted:
    outcome = classify_token_response(PROFILES[profile], parse_token_response(200, {}, body))
    assert isinstance(outcome, Granted), outcome
    return outcome


# ---- expires_in

TTL = 1800.0


@pytest.mark.parametrize(
    ("life", "expected_s"),
    [
        ("null", TTL), ('""', TTL),
        ("3600", 3600), ('"3600"', 3600), ('"0003600"', 3600), ("3600.5", 3600),
        ("3.6e3", 3600), ("1", 1),
        ("0", TTL), ("-1", TTL), ("0.4", TTL), ('"0"', TTL), ('"-1"', TTL),
        ('"3600.5"', 3600), ('"1e3"', 1000), ('" 3600"', 3600), ('"3_600"', TTL),
        ('"+3600"', TTL), ('"\u0663\u0666\u0660\u0660"', TTL), ('"0x10"', TTL),
        ("NaN", TTL), ("Infinity", TTL), ("-Infinity", TTL), ("1e400", TTL),
        ("9" * 5_000, TTL), ("1" + "0" * 5_000 + ".0", TTL),
        ('"' + "9" * 5_000 + '"', TTL), ("true", TTL), ("false", TTL), ("[]", TTL),
        ("{}", TTL), ('"soon"', TTL), ("1795000000000", TTL), ("400000000", TTL),
    ],
)  # fmt: skip
def test_expires_in(life: str, expected_s: float) -> None:
    granted = _granted(_raw(life))
    assert granted.expires_in_s == expected_s
    assert granted.access_token == Secret("at-1")


def test_expires_in_absent_is_the_profiles_life_and_no_fault() -> None:
    granted = _granted(b'{"access_token": "at-1"}', "mercadolibre")
    assert granted.expires_in_s == 21_600


def test_milliseconds_are_read_only_where_the_profile_says_so() -> None:
    in_ms = XERO.overlay({"expires_in_unit": "ms"})
    outcome = classify_token_response(in_ms, parse_token_response(200, {}, _raw("3600000")))
    assert isinstance(outcome, Granted)
    assert outcome.expires_in_s == 3600
    assert _granted(_raw("3600000")).expires_in_s == 3_600_000


# ---- tokens

UNREADABLE: list[tuple[str, bytes]] = [
    ("CR LF in access_token", _body(access_token="at\r\nX-Evil: 1")),
    ("NUL in access_token", _body(access_token="at\0")),
    ("newline at the end", _body(access_token="at\n")),
    ("non-ASCII access_token", _body(access_token="\u00e4t")),
    ("space in access_token", _body(access_token="a t")),
    ("lone surrogate", b'{"access_token": "a\\ud800"}'),
    ("number as access_token", _body(access_token=5)),
    ("list as access_token", _body(access_token=["at"])),
    ("access_token too long", _body(access_token="a" * 65_537)),
    ("refresh_token too long", _body(refresh_token="r" * 65_537)),
    ("refresh_token of 1 MiB", _body(refresh_token="r" * 2**20)),
    ("CR LF in refresh_token", _body(refresh_token="r\r\n")),
    ("number as refresh_token", _body(refresh_token=7)),
    ("duplicate key", b'{"access_token": "a", "access_token": "b"}'),
    ("duplicate key inside", b'{"access_token": "a", "x": {"y": 1, "y": 2}}'),
    ("duplicate key by escape", b'{"access_token": "a", "\\u0061ccess_token": "b"}'),
    ("empty body", b""),
    ("blank body", b" \r\n"),
    ("HTML", b"<!doctype html><title>Sign in</title>"),
    ("XML", b'<?xml version="1.0"?><error/>'),
    ("plain text", b"OK"),
    ("JSON array", b'[{"access_token": "a"}]'),
    ("JSON text", b'"access_token"'),
    ("JSON number", b"5"),
    ("cut JSON", b'{"access_token": "a"'),
    ("two JSON values", b'{"access_token": "a"}{"access_token": "b"}'),
    ("bad UTF-8", b'{"access_token": "\xff"}'),
    ("UTF-16 without mark", '{"access_token": "a"}'.encode("utf-16-le")),
    ("100,000 brackets", b'{"a":' + b"[" * 100_000),
    ("100,000 braces", b'{"a":' * 40_000),
    ("deep but closed", b'{"access_token": "a", "x": ' + b"[" * 40 + b"]" * 40 + b"}"),
    ("too large", b'{"access_token": "a", "x": "' + b"x" * 300_000 + b'"}'),
    ("no token", b"{}"),
    ("null token", b'{"access_token": null}'),
    ("empty token", b'{"access_token": ""}'),
    ("token below", b'{"data": {"access_token": "a"}}'),
    ("form with duplicate", b"access_token=a&access_token=b"),
    ("form with CR LF", b"access_token=a%0d%0ab"),
    ("form with bad UTF-8", b"access_token=%ff"),
    ("form without value", b"access_token"),
    ("form with 1,000 fields", b"access_token=a" + b"&x=1" * 1_000),
]  # fmt: skip


@pytest.mark.parametrize("body", [body for _, body in UNREADABLE], ids=[name for name, _ in UNREADABLE])
def test_unreadable_answers_are_refused_without_raising(body: bytes) -> None:
    answer = parse_token_response(200, {}, body)
    assert answer.grant is None
    assert answer.problem
    assert "Evil" not in answer.problem


def test_unended_strings_of_quotes_cost_no_time() -> None:
    started = time.process_time()
    for tail in (b"", b"\\"):
        parse_token_response(200, {}, b"{" * 40 + b'"' + b'\\"' * 120_000 + tail)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("refresh", ["absent", None, ""])
def test_an_absent_refresh_token_is_none(refresh: str | None) -> None:
    body = b'{"access_token": "a"}' if refresh == "absent" else _body(refresh_token=refresh)
    assert _granted(body).refresh_token is None


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("bearer", "Bearer"), ("BEARER", "Bearer"), ("Bearer", "Bearer"), ("mac", "mac"), ("N_A", "N_A"),
        (None, None), (5, None), ("", None), ("Bearer\r\nX: 1", None), ("b" * 65, None), (["Bearer"], None),
    ],
)  # fmt: skip
def test_token_type(sent: object, read: str | None) -> None:
    assert _granted(_body(token_type=sent)).token_type == read


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("read write", "read write"), (["read", "write"], "read write"), ("", None), (None, None), (5, None),
        ("a\nb", None), ("\u00e4", None), (["a", 5], None), ([], None), ("s" * 9_000, None),
    ],
)  # fmt: skip
def test_scope(sent: object, read: str | None) -> None:
    assert _granted(_body(scope=sent)).scope == read


def test_a_form_encoded_answer_is_read() -> None:
    granted = _granted(b"access_token=at-1&refresh_token=r%2F1&expires_in=28800&token_type=bearer&scope=a+b")
    assert granted.refresh_token == Secret("r/1")
    assert (granted.expires_in_s, granted.token_type, granted.scope) == (28_800, "Bearer", "a b")


def test_the_content_type_is_not_believed_and_a_mark_of_byte_order_is_skipped() -> None:
    answer = parse_token_response(200, {"Content-Type": ["text/html"]}, b"\xef\xbb\xbf \n" + _body())
    assert answer.grant is not None


def test_unknown_fields_are_kept_as_strict_json_and_hidden() -> None:
    body = b'{"access_token": "a", "id_token": "CANARY", "__proto__": {"x": 1}, "n": [NaN, 1e999, "\\ud800"]}'
    granted = _granted(body)
    assert json.loads(granted.other.reveal()) == {
        "id_token": "CANARY", "__proto__": {"x": 1}, "n": [None, None, "\ud800"],
    }  # fmt: skip
    assert "CANARY" not in repr(granted)
    assert "NaN" not in granted.other.reveal()


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        ({"Retry-After": ["120"]}, "120"), ({"retry-after": "2.5"}, "2.5"), ({}, None),
        ({"RETRY-AFTER": ["1", "2"]}, None), ({"retry-after": ["1"], "Retry-After": ["2"]}, None),
        ({"retry-after": ["9" * 5_000]}, None),
    ],
)  # fmt: skip
def test_retry_after_is_handed_on_unread_if_there_is_one(headers: dict[str, Any], read: str | None) -> None:
    assert parse_token_response(429, headers, b"").retry_after == read


def test_no_secret_shows_in_an_answer() -> None:
    body = _body(error="CANARY", error_description="CANARY", refresh_token="CANARY", access_token="CANARY")
    assert "CANARY" not in repr(parse_token_response(200, {}, body))
    assert "CANARY" not in repr(parse_token_response(400, {}, body))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
field_names = st.sampled_from(
    ["access_token", "refresh_token", "expires_in", "scope", "token_type", "error", "message", "user_id"]
)


@given(
    st.binary(max_size=400) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_no_bytes_make_it_raise(body: bytes) -> None:
    assert isinstance(parse_token_response(200, {}, body), TokenResponse)


@given(st.dictionaries(field_names, json_values), st.integers(100, 599), st.sampled_from(sorted(PROFILES)))
def test_no_fields_make_reading_judging_or_merging_raise(
    fields: dict[str, Any], status: int, name: str
) -> None:
    answer = parse_token_response(status, {}, json.dumps(fields).encode())
    outcome = classify_token_response(PROFILES[name], answer)
    if isinstance(outcome, Granted):
        tokens = merge(None, outcome, SENT_AT)
        assert token_set_from_record(token_set_to_record(tokens)) == tokens
        assert outcome.access_token.reveal().isascii()


# ---- merge (T7) and the public part (T8, S18)

STORED = TokenSet(
    access_token=Secret("at-0"),
    refresh_token=Secret("rt-0"),
    token_type="mac",
    scope="read",
    expires_at=SENT_AT,
    refresh_expires_at=SENT_AT + timedelta(days=3),
    account_id="42",
    other=Secret('{"kept":1,"replaced":1}'),
)


def test_merge_keeps_what_is_absent() -> None:
    tokens = merge(STORED, _granted(b'{"access_token": "at-1", "expires_in": 60}', "google"), SENT_AT)
    assert tokens.refresh_token == Secret("rt-0")
    assert tokens.scope == "read"
    assert tokens.account_id == "42"
    assert tokens.token_type == "Bearer"
    assert tokens.expires_at == SENT_AT + timedelta(seconds=60)
    assert json.loads(tokens.other.reveal()) == {"kept": 1, "replaced": 1}


def test_merge_takes_what_is_new() -> None:
    granted = _granted(
        _body(scope="write", replaced=2, expires_in=60, x_refresh_token_expires_in=864_000), "quickbooks"
    )
    tokens = merge(STORED, granted, SENT_AT)
    assert tokens.refresh_token == Secret("rt-1")
    assert tokens.scope == "write"
    assert tokens.refresh_expires_at == SENT_AT + timedelta(days=10)
    assert json.loads(tokens.other.reveal())["replaced"] == 2
    assert json.loads(tokens.other.reveal())["kept"] == 1


def test_merge_keeps_the_end_of_a_kept_refresh_token_unless_its_idle_clock_restarts() -> None:
    body = b'{"access_token": "a"}'
    assert merge(STORED, _granted(body, "netsuite"), SENT_AT).refresh_expires_at == STORED.refresh_expires_at
    restarted = merge(STORED, _granted(body, "google"), SENT_AT).refresh_expires_at
    assert restarted == SENT_AT + timedelta(days=183)
    assert merge(None, _granted(body, "google"), SENT_AT).refresh_expires_at is None


def test_a_token_without_end_has_no_expiry() -> None:
    permanent = PROFILES["shopify"].variant("permanent")
    outcome = classify_token_response(
        permanent, parse_token_response(200, {}, b'{"access_token": "shpat_1"}')
    )
    assert isinstance(outcome, Granted)
    assert merge(None, outcome, SENT_AT).expires_at is None


@pytest.mark.parametrize(
    ("profile", "fields", "account"),
    [
        ("mercadolibre", {"user_id": 8035443}, "8035443"),
        ("mercadolibre", {"user_id": True}, None),
        ("mercadolibre", {"user_id": {"id": 1}}, None),
        (
            "salesforce",
            {"id": "https://login.salesforce.com/id/00Dx0000000BV7z/005x00000012Q9P"},
            "00Dx0000000BV7z",
        ),
        ("salesforce", {"id": "https://["}, None),
        ("salesforce", {"id": "none"}, None),
        ("shopify", {"user_id": 5}, None),
    ],
)
def test_the_account_of_an_answer(profile: str, fields: dict[str, Any], account: str | None) -> None:
    granted = _granted(_body(**fields), profile)
    assert granted.account_id == account
    assert account_mismatch("other", granted) is (account is not None)
    assert not account_mismatch(account, granted)
    assert not account_mismatch(None, granted)


PUBLIC = {"access_token", "token_type", "expires_at", "scope", "account_id"}


@given(
    st.dictionaries(st.text(max_size=20), json_values, max_size=6), st.text("abcdef0123456789", min_size=12)
)
def test_parsed_token_response_has_only_five_names(fields: dict[str, Any], secret: str) -> None:
    hidden = {
        "id_token": secret,
        "Refresh_Token": secret,
        "clientSecret": secret,
        "nested": [{"refresh_token": secret}],
    }
    body = json.dumps({**fields, **hidden, "access_token": "at", "refresh_token": secret}).encode()
    outcome = classify_token_response(XERO, parse_token_response(200, {}, body))
    assert isinstance(outcome, Granted)
    public = sanitise(merge(None, outcome, SENT_AT))
    assert set(public.as_dict()) == PUBLIC == set(PublicToken.__slots__) - {"generation"}
    if outcome.scope is None or secret not in outcome.scope:
        assert secret not in json.dumps(public.as_dict())


def test_no_secret_shows_when_a_token_set_is_printed() -> None:
    tokens = TokenSet(Secret("CANARY-1"), Secret("CANARY-2"), other=Secret('{"x": "CANARY-3"}'))
    assert "CANARY" not in f"{tokens} {tokens!r} {sanitise(tokens)!r}"


def test_the_sealed_form_comes_back_as_it_was() -> None:
    assert token_set_from_record(token_set_to_record(STORED)) == STORED
    key = TokenSet(access_token=Secret("sk_live"))
    assert token_set_from_record(token_set_to_record(key)) == key


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: {},
        lambda record: [],
        lambda record: {**record, "v": 2},
        lambda record: {name: value for name, value in record.items() if name != "scope"},
    ],
)
def test_a_record_of_another_kind_is_refused_without_its_content(damage: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError) as caught:
        token_set_from_record(damage(token_set_to_record(STORED)))
    assert "rt-0" not in str(caught.value)
