"""How long an access token lives: by its answer, by its own claims, by earlier answers, by the profile."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.engine.tokens.settle import given_lifetime
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.lifetime import (
    LONGEST_LIFE,
    jwt_lifetime_s,
    read_number,
    read_time,
    stated_lifetime_s,
)
from fairlead.policy.tokens.outcome import Granted, classify_token_response
from fairlead.policy.tokens.parse import parse_token_response
from fairlead.policy.tokens.token import merge, token_set_from_record, token_set_to_record

MERCADO = load_profiles()["mercadolibre"]
SIX_HOURS = 21_600.0
NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
DATE = format_datetime(NOW, usegmt=True)


def jwt(**claims: Any) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    head, body = (base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    return f"{head}.{body}.c2lnbmF0dXJl"


def granted(
    token: str = "APP_USR-1", *, date: str | None = DATE, life_before_s: float | None = None, **fields: Any
):
    body = json.dumps({"access_token": token, **fields}).encode()
    headers = {} if date is None else {"Date": [date]}
    outcome = classify_token_response(
        MERCADO, parse_token_response(200, headers, body), lifetime_s=life_before_s
    )
    assert isinstance(outcome, Granted)
    return outcome


@pytest.mark.parametrize(
    ("outcome", "expected_s"),
    [
        (granted(expires_in="600.0"), 600),
        (granted(expires_in=" 6e2 "), 600),
        (granted(expires_at=NOW_S + 600), 600),
        (granted(expires_at=str(NOW_S + 600)), 600),
        (granted(expires_at=(NOW_S + 600) * 1000), 600),
        (granted(expires_at="2026-11-27T12:10:00.123456789Z"), 600.123456),
        (granted(expires_at="2026-11-27T14:10:00+02:00"), 600),
        (granted(expires_at=format_datetime(NOW + timedelta(seconds=600), usegmt=True)), 600),
        (granted(expires_in=3600, expires_at=NOW_S + 600), 3600),
        (granted(expires_in=0, expires_at=NOW_S + 600), 600),
        (granted(expires_at="2026-11-27T12:10:00"), SIX_HOURS),  # no zone
        (granted(expires_at=NOW_S - 5), SIX_HOURS),
        (granted(date=None, expires_at=NOW_S + 600), SIX_HOURS),
        (granted(jwt(exp=NOW_S + 600, iat=NOW_S)), 600),
        (granted(jwt(exp=NOW_S + 600)), 600),
        (granted(jwt(exp=NOW_S + 600, iat=NOW_S), date=None), 600),
        (granted(jwt(exp=NOW_S + 600, iat=NOW_S - 3000)), 600),  # made earlier, and returned again
        (granted(jwt(exp=NOW_S - 86_400 + 600, iat=NOW_S - 86_400)), 600),
        (granted(jwt(exp=NOW_S + 600, iat=NOW_S), expires_in=3600), 600),
        (granted(jwt(exp=NOW_S + 3600, iat=NOW_S), expires_in=600), 600),
        (granted(jwt(exp=NOW_S, iat=NOW_S + 600), date=None), SIX_HOURS),
        (granted(jwt(exp="soon", iat=NOW_S), life_before_s=900.0), 900),
        (granted(jwt(exp=NOW_S + 600, iat=NOW_S), life_before_s=900.0), 600),
        (granted(life_before_s=600.0), 600),
        (granted(expires_in=-1, life_before_s=600.0), 600),
        (granted(expires_in=3600, life_before_s=600.0), 3600),
        (granted(), SIX_HOURS),
    ],
)
def test_lifetime_comes_from_expires_in_expires_at_jwt_last_answer_or_profile(
    outcome: Granted, expected_s: float
) -> None:
    assert outcome.expires_in_s == pytest.approx(expected_s, abs=1e-5)


def test_lifetime_that_was_stated_once_is_stored_for_answers_that_state_none() -> None:
    stored = merge(None, granted(expires_in=600), NOW)
    stored = token_set_from_record(token_set_to_record(stored))
    for _ in range(2):
        stored = merge(stored, granted(life_before_s=stored.lifetime_s), NOW)
        assert stored.expires_at == NOW + timedelta(seconds=600)


def test_lifetime_is_none_in_a_record_of_an_earlier_version() -> None:
    record = token_set_to_record(merge(None, granted(expires_in=600), NOW))
    del record["lifetime_s"]
    assert token_set_from_record(record).lifetime_s is None


@pytest.mark.parametrize(
    ("token", "expires_in_s", "earlier_s", "expected_s"),
    [
        ("opaque", None, None, SIX_HOURS),
        ("opaque", None, 900.0, 900),
        ("opaque", 300.0, 900.0, 300),
        (jwt(exp=NOW_S + 600, iat=NOW_S), None, 900.0, 600),
        (jwt(exp=NOW_S + 600, iat=NOW_S), 3600.0, None, 600),
        (jwt(exp=NOW_S + 600, iat=NOW_S), 60.0, None, 60),
        (None, None, 900.0, 0),
    ],
)
def test_lifetime_of_an_imported_grant(
    token: str | None, expires_in_s: float | None, earlier_s: float | None, expected_s: float
) -> None:
    secret = None if token is None else Secret(token)
    assert given_lifetime(MERCADO, UUID(int=1), secret, expires_in_s, earlier_s).expires_in_s == expected_s


@given(st.integers(1, LONGEST_LIFE), st.sampled_from(["{}", "{}.0", " {}", "{}.75", "\t{} ", "{}e0", "0{}"]))
def test_every_spelling_of_a_number_is_read_alike(seconds: int, form: str) -> None:
    assert read_number(form.format(seconds)) == seconds == read_number(seconds) == read_number(seconds + 0.5)


@given(st.integers(946_684_800, 4_102_444_800), st.integers(-720, 840))
def test_every_spelling_of_a_time_is_read_alike(at_s: int, offset_min: int) -> None:
    zoned = datetime.fromtimestamp(at_s, UTC)
    local = (zoned + timedelta(minutes=offset_min)).replace(tzinfo=None).isoformat()
    zone = f"{'-' if offset_min < 0 else '+'}{abs(offset_min) // 60:02}:{abs(offset_min) % 60:02}"
    spellings = [at_s, str(at_s), at_s * 1000, format_datetime(zoned, usegmt=True), f"{local}{zone}"]
    assert {read_time(spelling) for spelling in spellings} == {at_s}


DEEP = base64.urlsafe_b64encode(b'{"a":' + b"[" * 9_000).decode()
segments = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", max_size=60)
claim = st.integers() | st.floats() | st.text(max_size=5) | st.booleans() | st.none()
tokens = st.one_of(
    st.text(max_size=80),
    st.builds("e{}.e{}.{}".format, segments, segments, segments),
    st.builds(jwt, exp=claim, iat=claim),
    st.binary(max_size=90).map(lambda raw: f"eyJ9.{base64.urlsafe_b64encode(raw).rstrip(b'=').decode()}.x"),
    st.just("eyJ9.e" + "w" * 20_000 + ".x"),
    st.just(f"eyJ9.{DEEP}.x"),
)


@given(tokens, st.none() | st.floats(allow_nan=False), st.none() | st.floats(), st.none() | st.text())
def test_no_token_makes_reading_its_lifetime_raise(
    token: str, life_s: float | None, ends_at: float | None, date: str | None
) -> None:
    for lifetime_s in (jwt_lifetime_s(token, ends_at), stated_lifetime_s(life_s, ends_at, token, date)):
        assert lifetime_s is None or (1 <= lifetime_s <= LONGEST_LIFE and math.isfinite(lifetime_s))


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 4 * 10**9))
def test_the_end_that_comes_first_counts(life_s: int, own_s: int, made_at: int) -> None:
    token = jwt(exp=made_at + own_s, iat=made_at)
    if made_at:
        assert stated_lifetime_s(life_s, None, token, None) == min(life_s, own_s)
