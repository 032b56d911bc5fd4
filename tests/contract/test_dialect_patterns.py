"""Rules of one's own: what they match, whom they outrank, and what is refused when it is given (C3, K2)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fairlead.errors import InvalidConfigError
from fairlead.policy.calls.classify.rules import builtin_rules, rules_of
from fairlead.policy.calls.classify.verdict import LimitScope, Result, Step
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next, StrategyName
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.pattern import Pattern, sort_patterns
from fairlead.policy.providers.profile_load import load_profiles
from tests.contract.dialects import PROFILES, checked, judged, own_rules, pattern

SOLD_OUT = RawResponse(409, body={"message": "The article is SOLD OUT"})


# ---- what it matches


def test_words_within_a_status() -> None:
    verdict = judged(SOLD_OUT, own_rules(pattern()))
    assert (verdict.rule, verdict.step, verdict.unclassified) == ("mine", Step.PATTERN, False)
    assert (verdict.strategy.name, verdict.max_attempts) == (StrategyName.CONSTANT, 3)
    assert judged(RawResponse(500, body=SOLD_OUT.body), own_rules(pattern())).rule == "status 500"
    assert (
        judged(RawResponse(409, body={"message": "out of stock"}), own_rules(pattern())).rule == "status 409"
    )


@pytest.mark.parametrize(
    ("signs", "reply", "step"),
    [
        ({"provider_codes": ["E17"]}, RawResponse(400, body={"error": {"code": "E17"}}), Step.PROVIDER_CODE),
        ({"provider_codes": ["3200"]}, RawResponse(400, body={"code": 3200}), Step.PROVIDER_CODE),
        ({"header": {"name": "X-Busy"}}, RawResponse(400, {"x-busy": "1"}), Step.HEADER),
        (
            {"header": {"name": "X-Why", "value": "re-index*"}},
            RawResponse(400, {"x-why": "Re-indexing"}),
            Step.HEADER,
        ),
        (
            {"body": {"path": "error.busy", "value": True}},
            RawResponse(400, body={"error": {"busy": True}}),
            None,
        ),
        ({"body": {"path": "errors.*.id", "value": 7}}, RawResponse(400, body={"errors": [{"id": 7}]}), None),
        ({"body": {"path": "lock"}}, RawResponse(400, body={"lock": "row"}), None),
        ({"decisive_codes": [409], "http_codes": [409]}, RawResponse(409), Step.STATUS),
        ({"decisive_codes": ["4xx"]}, RawResponse(418), Step.STATUS),
    ],
)
def test_every_sign(signs: dict[str, Any], reply: RawResponse, step: Step | None) -> None:
    rules = own_rules(pattern(patterns=[], **signs))
    verdict = judged(reply, rules)
    assert (verdict.rule, verdict.step) == ("mine", step or Step.PROVIDER_CODE)
    silent = RawResponse(422, {"x-why": "no"}, body={"error": {"busy": 1}, "lock": None})
    assert "decisive_codes" in signs or judged(silent, rules).rule == "status 422"


def test_a_failure_in_a_200_is_seen_by_a_rule_that_names_it() -> None:
    body = {"path": "ok", "value": False}
    rules = own_rules(pattern(http_codes=[200], patterns=[], body=body, strategy="none"))
    verdict = judged(RawResponse(200, body={"ok": False}), rules)
    assert (verdict.result, verdict.rule, verdict.health) == (
        Result.FAILED,
        "mine",
        DestinationHealth.HEALTHY,
    )
    assert judged(RawResponse(200, body={"ok": True}), rules).result is Result.OK
    assert judged(RawResponse(200, body={"ok": 0}), rules).result is Result.OK


@pytest.mark.parametrize(("seconds", "daily"), [(7.0, False), (3600.0, True), (None, True)])
def test_a_park_of_seconds_is_no_daily_limit(seconds: float | None, daily: bool) -> None:
    delay = {} if seconds is None else {"initial_delay_s": seconds, "max_delay_s": max(seconds, 30.0)}
    mine = pattern(strategy="parked", category="transient_rate_limit", **delay)
    verdict = judged(SOLD_OUT, own_rules(mine))
    assert (verdict.daily, verdict.scope is LimitScope.DAY) == (daily, daily)
    soon = RawResponse(SOLD_OUT.status, {"retry-after": "7"}, SOLD_OUT.body)
    assert not judged(soon, own_rules(mine)).daily


def test_400_is_retried_only_because_a_rule_says_so() -> None:
    reply = RawResponse(400, body={"message": "sold out"})
    assert judged(reply).next is Next.OVER
    assert judged(reply, own_rules(pattern())).next is Next.RETRY


def test_the_order_is_code_header_status_pattern() -> None:
    signs: list[dict[str, Any]] = [
        {"name": "by_words"},
        {"name": "by_status", "patterns": [], "http_codes": [409], "decisive_codes": [409]},
        {"name": "by_header", "patterns": [], "header": {"name": "x-busy"}},
        {"name": "by_code", "patterns": [], "provider_codes": ["E17"]},
    ]
    reply = RawResponse(409, {"x-busy": "1"}, body={"message": "sold out", "code": "E17"})
    for fewer in range(4):
        remaining_signs = signs[: 4 - fewer]
        assert (
            judged(reply, own_rules(*(pattern(**sign) for sign in remaining_signs))).rule
            == remaining_signs[-1]["name"]
        )


def test_a_status_by_number_is_asked_before_a_class_and_with_words_before_alone() -> None:
    rules = own_rules(
        pattern(name="a_class"),
        pattern(name="a_number", http_codes=[409]),
        pattern(name="alone", http_codes=[409], patterns=[], decisive_codes=[409]),
    )
    assert judged(SOLD_OUT, rules).rule == "a_number"
    assert judged(RawResponse(409), rules).rule == "alone"


def test_priorities_rule_and_the_others_follow_as_written() -> None:
    rules = own_rules(
        pattern(name="third"), pattern(name="second", priority=9), pattern(name="first", priority=1)
    )
    assert [sign.name for sign in rules.levels[0].patterns] == ["first", "second", "third"]
    assert judged(SOLD_OUT, rules).rule == "first"


# ---- whom it outranks


def test_connection_over_provider_over_what_ships() -> None:
    profile = PROFILES["generic_oauth2"].overlay({"patterns": [pattern(name="providers", http_codes=[429])]})
    reply = RawResponse(429, body={"message": "sold out"})
    mine = {"patterns": [pattern(name="connections", http_codes=[429])]}
    assert judged(reply, rules_of(profile, mine)).rule == "connections"
    assert judged(reply, rules_of(profile)).rule == "providers"
    assert judged(reply).rule == "rate_limit_errors"


def test_a_rule_changes_what_follows_and_not_what_was_heard() -> None:
    rules = own_rules(
        pattern(http_codes=[429], patterns=[], decisive_codes=[429], strategy="none"), provider="hubspot"
    )
    reply = RawResponse(429, {"retry-after": "7"}, body={"policyName": "SECONDLY"})
    verdict = judged(reply, rules)
    assert (verdict.rule, verdict.next, verdict.hint_s, verdict.limit) == ("mine", Next.OVER, 7, "search")


@pytest.mark.parametrize(
    ("strategy", "reply", "category"),
    [
        ("aggressive", SOLD_OUT, Category.TRANSIENT_RATE_LIMIT),
        ("parked", SOLD_OUT, Category.TRANSIENT_RATE_LIMIT),
        ("circuit_breaker", SOLD_OUT, Category.TRANSIENT_SERVER),
        ("constant", SOLD_OUT, Category.TRANSIENT_NETWORK),
        ("none", SOLD_OUT, Category.PERMANENT_REQUEST),
        ("none", RawResponse(403, body=SOLD_OUT.body), Category.PERMANENT_PERMISSION),
    ],
)
def test_a_category_that_is_not_named_follows_from_the_rule(
    strategy: str, reply: RawResponse, category: Category
) -> None:
    assert judged(reply, own_rules(pattern(strategy=strategy))).category is category
    named = own_rules(pattern(strategy=strategy, category="permanent_config"))
    assert judged(reply, named).category is Category.PERMANENT_CONFIG


def test_delays_of_ones_own() -> None:
    custom = judged(SOLD_OUT, own_rules(pattern(strategy="custom", delays_s=[1, 60], max_attempts=4)))
    assert [custom.strategy.nominal_s(n) for n in range(3)] == [1, 60, 60]
    constant = judged(SOLD_OUT, own_rules(pattern(initial_delay_s=90)))
    assert constant.strategy.nominal_s(0) == 90
    assert custom.max_attempts == 4


# ---- what is refused


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"initial_delay_s": 0}, "initial_delay_s"),
        ({"http_codes": []}, "http_codes"),
        ({"http_codes": [99]}, "from 100 to 599"),
        ({"http_codes": ["6xx"]}, "from 100 to 599"),
        ({"http_codes": [True]}, "from 100 to 599"),
        ({"patterns": []}, "matches nothing"),
        ({"patterns": ["x" * 501]}, "500"),
        ({"patterns": ["re:(a"]}, "unclosed group"),
        ({"patterns": ["re:(a)\\1"]}, "backreferences are not supported"),
        ({"patterns": ["*"]}, "matches every text"),
        ({"patterns": ["re:x*"]}, "matches every text"),
        ({"strategy": "hope"}, "strategy"),
        ({"strategy": "custom"}, "delays_s"),
        ({"delays_s": [1]}, "delays_s"),
        ({"strategy": "custom", "delays_s": [-1]}, "delays_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 11}, "max_attempts"),
        ({"priority": 0}, "priority"),
        ({"decisive_codes": [500]}, "decisive_codes names 500"),
        ({"name": "Not a name"}, "name"),
        ({"initial_delay_s": 60, "max_delay_s": 30}, "cap 30"),
        ({"body": {"path": "a..b"}}, "body.path"),
        ({"pattern": ["typing error"]}, "pattern"),
        ({"category": "bad_luck"}, "category"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_when_it_is_given(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        own_rules(pattern(**changes))
    assert "patterns.0" in refused.value.message
    assert expected in refused.value.message
    assert (refused.value.tenant, refused.value.provider) == ("acme", "generic_oauth2")
    assert "hint" in str(refused.value)


@pytest.mark.parametrize("missing", ["http_codes", "patterns", "strategy", "name"])
def test_pattern_without_a_required_field_is_refused(missing: str) -> None:
    fields = {name: value for name, value in pattern().items() if name != missing}
    with pytest.raises(ValidationError, match=missing):
        Pattern.model_validate(fields)


@pytest.mark.parametrize("twice", [{"name": "mine"}, {"name": "other", "priority": 3}])
def test_names_and_priorities_are_unique(twice: dict[str, Any]) -> None:
    """Duplicate priorities refused."""
    with pytest.raises(InvalidConfigError, match="two patterns have the"):
        own_rules(pattern(priority=3), pattern(**twice))


def test_a_level_has_a_bound() -> None:
    assert len(sort_patterns([checked(name=f"n{n}") for n in range(64)])) == 64
    with pytest.raises(InvalidConfigError, match="65 patterns are more than 64"):
        own_rules(*(pattern(name=f"n{n}") for n in range(65)))
    with pytest.raises(InvalidConfigError, match="201 words in patterns are more than 200"):
        own_rules(*(pattern(name=f"n{n}", patterns=["sold out"] * (30 if n else 21)) for n in range(7)))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_retries", 11),
        ("max_retries", -1),
        ("strategy", "custom"),
        ("initial_delay_s", 31.0),
        ("delays_s", [1]),
    ],
)
def test_settings_of_a_connection_that_cannot_be_are_refused(setting: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError):
        own_rules(**{setting: value})


def test_a_profile_with_a_bad_rule_does_not_start(tmp_path: Any) -> None:
    text = (
        'name = "acme"\ntitle = "Acme"\nstrategy = "static_key"\n'
        '[[patterns]]\nname = "a"\nhttp_codes = [400]\npatterns = ["re:(a+)+\\\\1"]\nstrategy = "none"\n'
    )
    (tmp_path / "acme.toml").write_text(text)
    with pytest.raises(InvalidConfigError, match=r"patterns\.0\.patterns\.0: .*backreferences"):
        load_profiles([tmp_path])


def test_shipped_patterns_are_the_documented_defaults() -> None:
    assert [rule.name for rule in builtin_rules()] == [
        "concurrency_errors",
        "api_limit_errors",
        "rate_limit_errors",
        "service_unavailable",
    ]
