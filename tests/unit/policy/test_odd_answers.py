"""100,000 odd answers: judging and learning never raise, and what is learnt stays within bounds (R52)."""

from __future__ import annotations

import json
import math
import random
from contextlib import suppress

import pytest

from fairlead.engine.limits.observations import Doubts, observations_for
from fairlead.engine.ports import Observation
from fairlead.policy.calls.classify.body import LazyResponse
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.failures.hint import DAILY_PARK_CAP_S, HINT_CAP_S
from fairlead.policy.limits.feedback.dialect import DIALECTS, parse_limits
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan, PoolLimit
from fairlead.policy.providers.pagination import (
    CursorPagination,
    LastIdPagination,
    LinkPagination,
    NextPageError,
    OffsetPagination,
    PageInfoPagination,
    PageRequest,
)
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.outcome import classify_token_response
from fairlead.policy.tokens.parse import parse_token_response

pytestmark = pytest.mark.slow

ANSWERS = 100_000
NOW_S = 1_800_000_000.0
URL = "https://api.example.com/items"
NAMES = ("requests", "points", "daily")
PLAN = Plan(
    Domain(("tenant", "a")),
    pool=PoolLimit("p", 5),
    buckets=tuple(BucketLimit(name, 100.0, 10.0, name=name) for name in NAMES),
)
HEADERS = """retry-after retry-after-ms date link ratelimit ratelimit-policy ratelimit-limit
    ratelimit-remaining
    ratelimit-reset x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset sforce-limit-info content-type
    x-shopify-shop-api-call-limit stripe-rate-limited-reason x-should-retry x-hubspot-ratelimit-max
    x-hubspot-ratelimit-remaining x-hubspot-ratelimit-interval-milliseconds"""
KEYS = """data errors error extensions code message path cost throttleStatus currentlyAvailable
    maximumAvailable
    restoreRate requestedQueryCost actualQueryCost results items status id index context ids category
    policyName has_more next paging total pageInfo hasNextPage endCursor userErrors bulkOperation links rel
    href access_token refresh_token expires_in scope token_type accountConcurrencyLimit success graphs
    integrationConcurrencyLimit integrationLimitType compositeResponse httpStatusCode"""
ALL_HEADERS, ALL_KEYS = HEADERS.split(), KEYS.split()
NUMBERS = (0, 1, -1, True, None, 1e-6, 1e-320, 1e308, math.inf, -math.inf, math.nan, 2**63, 10**400)
TEXTS = (
    "",
    "Throttled",
    "RATE_LIMITED",
    "THROTTLED",
    "DAILY",
    "integrationSpecific",
    "rate limit exceeded",
    '"default";q=20;w=31536000',
    '"default";r=0;t=9999999999',
    "limit=1, remaining=0, reset=5",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "2026-02-30T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    f"<{URL}?page=2>; rel=next",
    "<//[::1>; rel=next",
    "32/40",
    "api-usage=1/0",
    "x" * 5000,
    "\u0661\u0662",
    "\ud800",
    "nan",
    "-1",
    "1e400",
    "true",
)
POLICIES = ('"default";q=20;w=31536000', '"default";q=90;w=1', '"default";q=1;w=9999999999', '"default";q=9')
PAGINATIONS = (
    LinkPagination(),
    LinkPagination(items="items", next="links"),
    CursorPagination(items="items", cursor="next", param="c"),
    LastIdPagination(items="data"),
    OffsetPagination(items="results", total="total"),
    PageInfoPagination(items="data.items", page_info="data.pageInfo"),
)
"""One of each, over the keys that answers have here."""
PROFILES = load_profiles()
RULES = {rules.dialect: rules for rules in map(rules_of, PROFILES.values())}


def number(chance: random.Random) -> object:
    if chance.random() < 0.5:
        return chance.choice((chance.random() * 100, chance.randrange(2000)))
    return chance.choice(NUMBERS)


def text(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(TEXTS)
    return str(chance.choice((chance.randrange(100), chance.randrange(10**14), -chance.random(), 1e20)))


def value(chance: random.Random, depth: int) -> object:
    kind = chance.random()
    if depth == 0 or kind < 0.3:
        return number(chance) if kind < 0.15 else text(chance)
    if kind < 0.5:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {chance.choice(ALL_KEYS): value(chance, depth - 1) for _ in range(chance.randrange(5))}


def shopify_answer(chance: random.Random) -> object:
    status = {key: number(chance) for key in ("currentlyAvailable", "maximumAvailable", "restoreRate")}
    costs = {key: number(chance) for key in ("requestedQueryCost", "actualQueryCost")}
    return {"data": value(chance, 2), "extensions": {"cost": {**costs, "throttleStatus": status}}}


def netsuite_answer(chance: random.Random) -> object:
    keys = ("accountConcurrencyLimit", "integrationConcurrencyLimit")
    return {**{key: number(chance) for key in keys}, "integrationLimitType": "integrationSpecific"}


def body(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.1:
        return chance.choice((b"", b"<Fault><faultcode>x", b"[" * 2000, b"\xff\xfe{", b'{"a":' + b"9" * 5000))
    make_answer = shopify_answer if kind < 0.3 else netsuite_answer
    content = make_answer(chance) if kind < 0.4 else value(chance, 4)
    raw = json.dumps(content, default=str).encode()
    return raw[: chance.randrange(len(raw))] if kind > 0.95 else raw


def answer(chance: random.Random) -> tuple[int, dict[str, tuple[str, ...]], bytes]:
    status = chance.choice((200, 200, 201, 207, 304, 400, 401, 403, 404, 418, 423, 429, 429, 477, 500, 503))
    names = chance.sample(ALL_HEADERS, chance.randrange(6))
    headers = {name: tuple(text(chance) for _ in range(chance.choice((1, 1, 2)))) for name in names}
    if chance.random() < 0.05:  # two that are read together
        headers |= {"ratelimit-policy": (chance.choice(POLICIES),), "ratelimit": ('"default";r=0;t=9',)}
    return status, headers, body(chance)


def is_near(reported: tuple[float, ...], planned: tuple[float, ...] | None) -> bool:
    return planned is not None and all(0.1 <= a / b <= 10 for a, b in zip(reported, planned, strict=True))


def check_learnt(
    observation: Observation, bucket: BucketLimit, ignored: tuple[float, float] | None, longest_s: float
) -> None:
    """Hold what is learnt of *bucket* to its bounds; *before*: what the last answer told that was far off."""
    assert 0 <= max(observation.wait_s or 0.0, observation.held_s or 0.0) <= longest_s
    if observation.capacity is None and observation.per_s is None:
        return
    reported = (observation.capacity or bucket.capacity, observation.per_s or bucket.per_s)
    assert 1e-3 <= reported[0] <= 1e9
    assert 1e-6 <= reported[1] <= 1e9
    assert is_near(reported, (bucket.capacity, bucket.per_s)) or is_near(reported, ignored), "told once"


def judge_one(
    chance: random.Random,
    raw_answer: tuple[int, dict[str, tuple[str, ...]], bytes],
    dialect: str,
    doubts: Doubts,
) -> None:
    status, headers, raw = raw_answer
    reply = LazyResponse(status, headers, raw).excerpt()
    observations = parse_limits(dialect, reply, now_epoch_s=NOW_S)
    verdict = classify(RULES[dialect], reply, observations, now_epoch_s=NOW_S)
    delay_s = verdict.strategy.delay_s(0, draw=0.0, hint_s=verdict.hint_s, daily=verdict.daily)
    assert 0 <= delay_s <= (DAILY_PARK_CAP_S if verdict.daily else HINT_CAP_S)
    ignored_before, slots = dict(doubts.ignored), doubts.slots
    learned = observations_for(PLAN, observations, doubts)
    assert learned.slots is None or 1 <= learned.slots <= 100_000
    assert learned.slots is None or any(old and old / 20 <= learned.slots <= old * 10 for old in (5, slots))
    for index, bucket in enumerate(PLAN.buckets):
        if (observation := learned.observed.get(index)) is not None:
            longest_s = DAILY_PARK_CAP_S if any(item.daily for item in observations) else HINT_CAP_S
            check_learnt(observation, bucket, ignored_before.get(bucket.key), longest_s)
            most = observation.capacity or bucket.capacity
            assert 0 <= learned.actual.get(index, 0.0) <= most
            assert 0 <= learned.estimated.get(index, 0.0) <= most
    for pagination in chance.sample(PAGINATIONS, 2):
        with suppress(NextPageError):
            pagination.page_items(reply)
            pagination.next_request(PageRequest(URL, {"offset": "3"}), reply)
    parsed = parse_token_response(status, headers, raw)
    classify_token_response(PROFILES[chance.choice(("xero", "mercadolibre"))], parsed)


def judge_many(seed: int, answers: int) -> None:
    chance = random.Random(seed)
    doubts = {dialect: Doubts() for dialect in DIALECTS}
    for _ in range(answers):
        raw_answer, dialect = answer(chance), chance.choice(tuple(RULES))
        for _ in range(chance.choice((1, 1, 1, 2))):  # what is told twice may be believed
            judge_one(chance, raw_answer, dialect, doubts[dialect])


@pytest.mark.parametrize("seed", range(4))
def test_odd_answers_raise_nothing_and_are_believed_within_bounds(seed: int) -> None:
    judge_many(seed, ANSWERS // 4)


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("is_bucket", lambda capacity, per_s: True),
        ("Doubts.believes", lambda doubts, index, reported, planned: True),
        ("Doubts.believed_slots", lambda doubts, reported, planned: int(reported)),
        ("clamp_hint", lambda hint_s, *, daily_limit: hint_s),
        ("min", lambda value, most: value),
    ],
)
def test_ablation_of_a_bound(monkeypatch: pytest.MonkeyPatch, name: str, without: object) -> None:
    monkeypatch.setattr(f"fairlead.engine.limits.observations.{name}", without, raising=name != "min")
    with pytest.raises(AssertionError):
        judge_many(0, ANSWERS // 4)
