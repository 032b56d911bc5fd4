"""Every row of the rules that ship (DEFAULTS §4), and what each status means by itself (SPEC T)."""

from __future__ import annotations

import pytest

from fairlead.policy.calls.classify.verdict import Result, Step
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next, StrategyName
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import judged, soap_fault

LIMIT, SERVER = Category.TRANSIENT_RATE_LIMIT, Category.TRANSIENT_SERVER


def response_with(status: int, words: str) -> RawResponse:
    return RawResponse(status, body={"error": {"message": words}})


def coded(status: int, code: str) -> RawResponse:
    return RawResponse(status, body={"error": {"code": code}})


def graphql(code: str) -> RawResponse:
    return RawResponse(200, body={"errors": [{"message": "no", "extensions": {"code": code}}]})


CONCURRENCY = [
    response_with(429, "Too many concurrent requests"),
    response_with(429, "CONCURRENCY_LIMIT_EXCEEDED"),
    response_with(403, "Concurrent request limit was exceeded."),
    response_with(400, "SSS_REQUEST_LIMIT_EXCEEDED"),
    response_with(500, "WS_REQUEST_BLOCKED"),
    coded(429, "CONCURRENCY_LIMIT_EXCEEDED"),
    coded(400, "SSS_REQUEST_LIMIT_EXCEEDED"),
    graphql("CONCURRENCY_LIMIT_EXCEEDED"),
    soap_fault("s:Server", "<code>WS_REQUEST_BLOCKED</code>"),
    RawResponse(429, text="too many concurrent requests"),
]
RATE = [
    RawResponse(429),
    response_with(429, "anything at all"),
    response_with(429, "service unavailable"),
    graphql("RATE_LIMITED"),
    graphql("THROTTLED"),
    response_with(403, "API rate limit exceeded for user"),
    response_with(400, "Quota for the minute was exceeded"),
    response_with(403, "Too many recent requests"),
    response_with(500, "API limit reached"),
    RawResponse(403, text="<!DOCTYPE html><html><head><title>Rate limited</title></head></html>"),
]
API_LIMIT = [
    coded(403, "REQUEST_LIMIT_EXCEEDED"),
    coded(429, "DAILY_API_LIMIT_EXCEEDED"),
    response_with(403, "REQUEST_LIMIT_EXCEEDED: TotalRequests Limit exceeded."),
    RawResponse(403, body=[{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": "no more"}]),
]
UNAVAILABLE = [
    RawResponse(503),
    response_with(503, "rate limit"),
    response_with(500, "The shop is temporarily unavailable"),
    response_with(502, "Service is unavailable"),
    RawResponse(
        500, text="<html><head><title>Service Unavailable</title></head><body>rate limit</body></html>"
    ),
]


@pytest.mark.parametrize("reply", CONCURRENCY)
def test_concurrency_errors(reply: RawResponse) -> None:
    verdict = judged(reply)
    assert (verdict.rule, verdict.category) == ("concurrency_errors", LIMIT)
    assert (verdict.strategy.name, verdict.max_attempts, verdict.takes_slot) == ("aggressive", 5, True)
    assert [verdict.strategy.nominal_s(n) for n in range(4)] == [1, 2, 3, 3]


@pytest.mark.parametrize("reply", RATE)
def test_rate_limit_errors(reply: RawResponse) -> None:
    verdict = judged(reply)
    assert (verdict.rule, verdict.category) == ("rate_limit_errors", LIMIT)
    assert (verdict.strategy.name, verdict.max_attempts, verdict.takes_slot) == ("standard", 3, False)
    assert [verdict.strategy.nominal_s(n) for n in range(3)] == [5, 10, 20]


@pytest.mark.parametrize("reply", API_LIMIT)
def test_api_limit_errors(reply: RawResponse) -> None:
    verdict = judged(reply)
    assert (verdict.rule, verdict.category) == ("api_limit_errors", LIMIT)
    assert (verdict.strategy.name, verdict.max_attempts, verdict.next) == ("parked", 0, Next.LATER)


@pytest.mark.parametrize("reply", UNAVAILABLE)
def test_service_unavailable(reply: RawResponse) -> None:
    verdict = judged(reply)
    assert (verdict.rule, verdict.category) == ("service_unavailable", SERVER)
    assert (verdict.strategy.name, verdict.max_attempts, verdict.next) == ("circuit_breaker", 0, Next.LATER)
    assert (verdict.health, verdict.refused_before_acting) == (DestinationHealth.UNHEALTHY, False)


@pytest.mark.parametrize("reply", [*CONCURRENCY, *RATE, *API_LIMIT])
def test_a_limit_is_no_failure_of_the_destination_and_nothing_was_done(reply: RawResponse) -> None:
    verdict = judged(reply)
    assert verdict.health is DestinationHealth.HEALTHY
    assert verdict.scope is not None
    by_words_alone = reply.status >= 500 and verdict.step is Step.PATTERN
    assert verdict.refused_before_acting is not by_words_alone, "words of a 5xx may tell of anything"


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, Category.PERMANENT_REQUEST),
        (401, Category.PERMANENT_AUTH),
        (403, Category.PERMANENT_PERMISSION),
        (404, Category.PERMANENT_REQUEST),
        (405, Category.PERMANENT_REQUEST),
        (422, Category.PERMANENT_REQUEST),
        (302, Category.PERMANENT_REQUEST),
    ],
)
def test_permanent_failures_are_not_retried(status: int, category: Category) -> None:
    verdict = judged(response_with(status, "Failed to generate the report: the title is not allowed"))
    assert (verdict.result, verdict.category, verdict.step) == (Result.FAILED, category, Step.STATUS)
    assert (verdict.strategy.name, verdict.max_attempts, verdict.next) == ("none", 0, Next.OVER)
    assert (verdict.health, verdict.unclassified) == (DestinationHealth.HEALTHY, False)
    assert verdict.refused_before_acting is (status == 401)


@pytest.mark.parametrize("status", [500, 501, 502, 504, 520, 599])
def test_a_failure_of_the_server_is_tried_again_and_counts_against_it(status: int) -> None:
    verdict = judged(RawResponse(status))
    assert (verdict.category, verdict.health) == (SERVER, DestinationHealth.UNHEALTHY)
    assert (verdict.strategy.name, verdict.max_attempts) == ("exponential", 3)
    assert verdict.refused_before_acting is False


@pytest.mark.parametrize("status", [409, 418, 423, 499, 101])
def test_status_without_a_rule_is_a_network_failure_and_flagged(status: int) -> None:
    verdict = judged(RawResponse(status))
    assert (verdict.category, verdict.unclassified) == (Category.TRANSIENT_NETWORK, True)
    assert (verdict.step, verdict.health) == (Step.UNRECOGNISED, DestinationHealth.HEALTHY)
    assert (verdict.strategy.name, verdict.max_attempts) == ("exponential", 3)
    assert str(status) in verdict.why


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 304])
def test_a_success_is_one(status: int) -> None:
    verdict = judged(RawResponse(status, body={"message": "rate limit", "code": "THROTTLED"}))
    assert (verdict.result, verdict.category, verdict.next) == (Result.OK, None, Next.OVER)


def test_a_connection_says_how_often_and_how_long() -> None:
    from tests.contract.dialects import own_rules

    rules = own_rules(strategy="linear", max_retries=5, initial_delay_s=2.0, max_delay_s=9.0)
    verdict = judged(RawResponse(500), rules)
    assert (verdict.strategy.name, verdict.max_attempts) == (StrategyName.LINEAR, 5)
    assert [verdict.strategy.nominal_s(n) for n in range(6)] == [2, 4, 6, 8, 9, 9]
    never = judged(RawResponse(500), own_rules(max_retries=0))
    assert (never.next, never.max_attempts, never.category) == (Next.OVER, 0, SERVER)
