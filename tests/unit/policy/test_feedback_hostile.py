"""No answer breaks a dialect, and no number that comes out could break a bucket."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.policy.limits.feedback.dialect import DIALECTS, DialectName, parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse
from fairlead.policy.limits.feedback.readers import MOST, elements, number

LONGEST_S = 10_000_000_000
"""What ten digits of Retry-After can say, rounded up."""

HEADERS = [
    "date",
    "ratelimit",
    "ratelimit-limit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "sforce-limit-info",
    "stripe-rate-limited-reason",
    "x-hubspot-ratelimit-daily",
    "x-hubspot-ratelimit-daily-remaining",
    "x-hubspot-ratelimit-interval-milliseconds",
    "x-hubspot-ratelimit-max",
    "x-hubspot-ratelimit-remaining",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-shopify-shop-api-call-limit",
]
KEYS = [
    "accountConcurrencyLimit",
    "actualQueryCost",
    "bulkOperation",
    "code",
    "cost",
    "currentlyAvailable",
    "data",
    "error",
    "errorCode",
    "errors",
    "extensions",
    "integrationLimitType",
    "maximumAvailable",
    "message",
    "name",
    "o:errorCode",
    "o:errorDetails",
    "policyName",
    "requestedQueryCost",
    "restoreRate",
    "throttleStatus",
    "userErrors",
]
WORDS = [
    "DAILY",
    "OPERATION_IN_PROGRESS",
    "REQUEST_LIMIT_EXCEEDED",
    "SECONDLY",
    "SSS_REQUEST_LIMIT_EXCEEDED",
    "THROTTLED",
    "accountLimit",
    "local_rate_limited",
    "lock_timeout",
]
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.sampled_from([10**400, -(10**400), 1e308, 5e-324, -0.0])
)
SCALARS = st.one_of(st.none(), NUMBERS, st.sampled_from(WORDS), st.text(max_size=20))
BODIES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner)
    ),
    max_leaves=30,
)
COSTS = st.fixed_dictionaries(
    {"requestedQueryCost": SCALARS, "actualQueryCost": SCALARS},
    optional={
        "throttleStatus": st.fixed_dictionaries(
            {"maximumAvailable": SCALARS, "currentlyAvailable": SCALARS, "restoreRate": SCALARS}
        )
        | BODIES
    },
)
GRAPHQL = st.builds(
    lambda cost, errors: {"errors": errors, "extensions": {"cost": cost}},
    COSTS,
    st.just([{"extensions": {"code": "THROTTLED"}}]) | BODIES,
)
VALUES = st.one_of(
    st.text(max_size=40),
    st.from_regex(r"-?[0-9]{1,17}(\.[0-9]{1,4})?", fullmatch=True),
    st.from_regex(
        r'(api-usage=)?[0-9]{1,12}/[0-9]{1,12}|"[a-z ]{1,9}";r=[0-9]{1,16};t=[0-9]{1,11}', fullmatch=True
    ),
)
TEXTS = st.none() | st.text(alphabet="<>/: \n'\"abFfaultcodestring_", max_size=200) | st.sampled_from(WORDS)
REPLIES = st.builds(
    RawResponse,
    status=st.sampled_from([200, 207, 400, 403, 423, 429, 477, 500, 503]) | st.integers(),
    headers=st.dictionaries(st.sampled_from(HEADERS), st.lists(VALUES, max_size=3), max_size=8),
    body=GRAPHQL | BODIES,
    text=TEXTS,
)


def check(items: tuple[LimitObservation, ...]) -> None:
    limits = [item.limit for item in items]
    assert len(limits) == len(set(limits))
    for item in items:
        for units in (item.remaining, item.capacity, item.per_s, item.window_s, item.requested, item.actual):
            assert units is None or 0 <= units <= MOST
        for seconds in (item.reset_s, item.wait_s):
            assert seconds is None or 0 <= seconds <= LONGEST_S
        assert item.capacity is None or item.capacity >= 1
        assert item.per_s is None or item.per_s >= 1e-6
        assert item.refused == (item.wait_s is not None)


@pytest.mark.slow
@settings(max_examples=150)
@given(reply=REPLIES, now_epoch_s=st.none() | st.floats(0, 1e11))
def test_never_raises_and_numbers_are_finite_and_not_negative(
    reply: RawResponse, now_epoch_s: float | None
) -> None:
    for dialect in DIALECTS:
        check(parse_limits(dialect, reply, now_epoch_s=now_epoch_s))
        items = parse_limits(dialect, replace(reply, status=429), now_epoch_s=now_epoch_s)
        check(items)
        assert any(item.refused for item in items)


@pytest.mark.parametrize(
    "value",
    [None, True, False, "498", math.nan, math.inf, -math.inf, -1, -0.5, 1e15, 10**400, [1], {"a": 1}, b"1"],
)
def test_numbers_as_good_as_absent(value: Any) -> None:
    assert number(value) is None
    status = {"maximumAvailable": value, "currentlyAvailable": value, "restoreRate": value}
    body = {"extensions": {"cost": {"requestedQueryCost": value, "throttleStatus": status}}}
    assert parse_limits("shopify", RawResponse(200, body=body), now_epoch_s=None) == ()


def test_large_numbers_are_bounded() -> None:
    assert number(10**14) == number(2e9) == MOST
    assert number(999_999_999) == 999_999_999


def deep(depth: int) -> object:
    value: object = []
    for _ in range(depth):
        value = {"extensions": value, "errors": [value], "data": value, "error": value}
    return value


def test_a_profile_may_name_each_dialect() -> None:
    assert get_args(DialectName) == tuple(DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_deep_and_wide_bodies(dialect: str) -> None:
    wide = {"errors": [{}] * 10_000, "data": {key: {} for key in map(str, range(1000))}}
    for body in (deep(2000), wide, [deep(2000)] * 1000, json.loads('{"errors": NaN, "data": [Infinity]}')):
        for status in (200, 400, 429):
            check(parse_limits(dialect, RawResponse(status, body=body), now_epoch_s=None))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "text",
    [
        "<" * 1_000_000,
        "<a>" * 300_000,
        "<a " * 300_000,
        "<faultcode>" + " " * 1_000_000,
        "<Fault>" + "<code>" * 200_000,
        "Fault" * 200_000,
        "error code: " + "A" * 1_000_000,
        "<!DOCTYPE x [<!ENTITY y 'z'>]><faultcode>&y;</faultcode>",
        "\x00\ud800",
    ],
    ids=range(9),
)
def test_long_and_odd_texts(dialect: str, text: str) -> None:
    check(parse_limits(dialect, RawResponse(500, text=text), now_epoch_s=None))


def test_xml_is_read_by_local_name_whatever_prefix_and_attributes() -> None:
    text = "<a:code xsi:type='x'> A </a:code><code>B</code><codes>C</codes><code><b/></code>"
    assert list(elements(text, "code")) == [("code", "A"), ("code", "B")]
    assert list(elements(None, "code")) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_long_headers_and_many_of_them(dialect: str) -> None:
    for values in (["9" * 100_000], ["1"] * 10_000, [""], [], ["\ud800", "\x00"]):
        check(parse_limits(dialect, RawResponse(429, dict.fromkeys(HEADERS, values)), now_epoch_s=None))
