"""Every fixture of reference/gate.md §6.1: what it means, and what may be done about it."""

from __future__ import annotations

import pytest

from fairlead.policy.calls.classify.verdict import LimitScope, Result, Step
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import PROFILES, judged, soap_fault

THROTTLED = {
    "errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
    "extensions": {
        "cost": {
            "requestedQueryCost": 502,
            "actualQueryCost": None,
            "throttleStatus": {"maximumAvailable": 1000.0, "currentlyAvailable": 498, "restoreRate": 50.0},
        }
    },
}
IN_PROGRESS = {"code": "OPERATION_IN_PROGRESS", "message": "A bulk operation is already in progress."}
BULK = {"data": {"bulkOperationRunQuery": {"bulkOperation": None, "userErrors": [IN_PROGRESS]}}}
ROLLING = {
    "status": "error",
    "message": "You have reached your ten_secondly_rolling limit.",
    "policyName": "TEN_SECONDLY_ROLLING",
    "category": "RATE_LIMITS",
}
SALESFORCE_FAULT = (
    "<faultcode>sf:REQUEST_LIMIT_EXCEEDED</faultcode><faultstring>REQUEST_LIMIT_EXCEEDED: "
    "ConcurrentRequests (Concurrent API Requests) Limit exceeded.</faultstring>"
)
RATE, SLOT, DAY = "rate_limit_errors", "concurrency_errors", "api_limit_errors"
CONNECTION = LimitScope.CONNECTION


def netsuite(code: str) -> RawResponse:
    detail = f"<platformFaults:fault><platformFaults:code>{code}</platformFaults:code></platformFaults:fault>"
    return soap_fault("soapenv:Server.userException", detail)


def salesforce(message: str) -> RawResponse:
    return RawResponse(403, body=[{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": message}])


def stripe(**headers: str) -> RawResponse:
    return RawResponse(429, headers, body={"error": {"type": "rate_limit_error"}})


def hubspot(policy: str) -> RawResponse:
    return RawResponse(429, body={**ROLLING, "policyName": policy})


# provider, answer, rule, step, scope
LIMITS = {
    "shopify-throttled": ("shopify", RawResponse(200, body=THROTTLED), RATE, Step.PROTOCOL_BODY, CONNECTION),
    "shopify-throttled-429": (
        "shopify",
        RawResponse(429, body=THROTTLED),
        RATE,
        Step.PROTOCOL_BODY,
        CONNECTION,
    ),
    "shopify-rest": ("shopify", RawResponse(429, {"Retry-After": "2.0"}), RATE, Step.STATUS, CONNECTION),
    "shopify-bulk": ("shopify", RawResponse(200, body=BULK), RATE, Step.PROTOCOL_BODY, LimitScope.ENDPOINT),
    "hubspot-rolling": ("hubspot", RawResponse(429, body=ROLLING), RATE, Step.PROVIDER_CODE, CONNECTION),
    "hubspot-search": ("hubspot", hubspot("SECONDLY"), RATE, Step.PROVIDER_CODE, LimitScope.ENDPOINT),
    "hubspot-daily": ("hubspot", hubspot("DAILY"), DAY, Step.PROVIDER_CODE, LimitScope.DAY),
    "hubspot-locked": ("hubspot", RawResponse(423), RATE, Step.STATUS, LimitScope.OBJECT),
    "hubspot-moving": ("hubspot", RawResponse(477, {"Retry-After": "30"}), RATE, Step.STATUS, CONNECTION),
    "netsuite-rest": (
        "netsuite",
        RawResponse(400, body={"o:errorDetails": [{"o:errorCode": "SSS_REQUEST_LIMIT_EXCEEDED"}]}),
        SLOT,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "netsuite-rest-other": (
        "netsuite",
        RawResponse(400, body={"o:errorDetails": [{"o:errorCode": "CONCURRENT_REQUEST_LIMIT_EXCEEDED"}]}),
        SLOT,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "netsuite-429": ("netsuite", RawResponse(429), SLOT, Step.STATUS, CONNECTION),
    "netsuite-restlet": (
        "netsuite",
        RawResponse(400, text="error code: SSS_REQUEST_LIMIT_EXCEEDED\nerror message: too many"),
        SLOT,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "netsuite-soap-blocked": (
        "netsuite",
        netsuite("WS_REQUEST_BLOCKED"),
        SLOT,
        Step.PROTOCOL_BODY,
        CONNECTION,
    ),
    "netsuite-soap-session": (
        "netsuite",
        netsuite("WS_CONCUR_SESSION_DISALLWD"),
        SLOT,
        Step.PROTOCOL_BODY,
        CONNECTION,
    ),
    "netsuite-soap-named": (
        "netsuite",
        soap_fault("soapenv:Server.userException", "<p:exceededConcurrentRequestLimitFault/>"),
        SLOT,
        Step.PROTOCOL_BODY,
        CONNECTION,
    ),
    "salesforce-soap": (
        "salesforce",
        RawResponse(500, text=SALESFORCE_FAULT),
        SLOT,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "salesforce-403-day": (
        "salesforce",
        salesforce("TotalRequests Limit exceeded."),
        DAY,
        Step.PROVIDER_CODE,
        LimitScope.DAY,
    ),
    "salesforce-403-long-calls": (
        "salesforce",
        salesforce("ConcurrentRequests (Concurrent API Requests) Limit exceeded."),
        SLOT,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "salesforce-403-unsaid": ("salesforce", salesforce("no"), DAY, Step.PROVIDER_CODE, LimitScope.DAY),
    "stripe-rate": (
        "stripe",
        stripe(**{"stripe-rate-limited-reason": "global-rate"}),
        RATE,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "stripe-concurrency": (
        "stripe",
        RawResponse(429, {"stripe-rate-limited-reason": "global-concurrency"}),
        SLOT,
        Step.HEADER,
        CONNECTION,
    ),
    "stripe-endpoint": (
        "stripe",
        RawResponse(429, {"stripe-rate-limited-reason": "endpoint-rate"}),
        RATE,
        Step.HEADER,
        LimitScope.ENDPOINT,
    ),
    "stripe-lock": (
        "stripe",
        RawResponse(429, body={"error": {"code": "lock_timeout"}}),
        "object_lock",
        Step.PROVIDER_CODE,
        LimitScope.OBJECT,
    ),
    "mercadolibre-text": (
        "mercadolibre",
        RawResponse(429, {"content-type": "text/plain"}, text="local_rate_limited"),
        RATE,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "mercadolibre-json": (
        "mercadolibre",
        RawResponse(429, body={"code": "local_rate_limited"}),
        RATE,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "google-403": (
        "google",
        RawResponse(403, body={"error": {"code": 403, "errors": [{"reason": "userRateLimitExceeded"}]}}),
        "limit_as_403",
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    # These limits are documented (blogs.intuit.com 2016/08/08; developer.xero.com, limits); what the answers
    # look like is from memory
    "quickbooks": (
        "quickbooks",
        RawResponse(
            429,
            body={
                "fault": {
                    "error": [{"message": "message=ThrottleExceeded; errorCode=003001; statusCode=429"}],
                    "type": "SERVICE",
                }
            },
        ),
        RATE,
        Step.STATUS,
        CONNECTION,
    ),
    "xero-minute": (
        "xero",
        RawResponse(429, {"x-rate-limit-problem": "minute"}),
        RATE,
        Step.STATUS,
        CONNECTION,
    ),
    "xero-day": (
        "xero",
        RawResponse(429, {"x-rate-limit-problem": "day"}),
        "day_used_up",
        Step.HEADER,
        LimitScope.DAY,
    ),
    "xero-in-flight": (
        "xero",
        RawResponse(429, {"X-Rate-Limit-Problem": "Concurrent"}),
        "calls_in_flight",
        Step.HEADER,
        CONNECTION,
    ),
    # As it is quoted in google-gemini/gemini-cli #2020
    "gemini": (
        "gemini",
        RawResponse(
            429,
            body={
                "error": {
                    "code": 429,
                    "message": "Resource has been exhausted (e.g. check quota).",
                    "status": "RESOURCE_EXHAUSTED",
                }
            },
        ),
        RATE,
        Step.STATUS,
        CONNECTION,
    ),
    # Its limit of tokens a minute, in OpenAI's words for a bill that is not paid (can1357/oh-my-pi #8476)
    "qwen-tokens": (
        "qwen",
        RawResponse(
            429,
            body={
                "error": {
                    "message": "You exceeded your current quota, please check your plan and billing details.",
                    "type": "insufficient_quota",
                    "code": "insufficient_quota",
                }
            },
        ),
        RATE,
        Step.STATUS,
        CONNECTION,
    ),
    "anthropic": (
        "anthropic",
        RawResponse(429, body={"type": "error", "error": {"type": "rate_limit_error"}}),
        RATE,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "openai": (
        "openai",
        RawResponse(429, body={"error": {"code": "rate_limit_exceeded", "message": "Rate limit reached"}}),
        RATE,
        Step.PROVIDER_CODE,
        CONNECTION,
    ),
    "any": ("generic_oauth2", RawResponse(429), RATE, Step.STATUS, CONNECTION),
}


def test_every_built_in_provider_has_fixtures() -> None:
    assert {provider for provider, *_ in LIMITS.values()} == PROFILES.keys()


@pytest.mark.parametrize("provider", sorted(PROFILES.keys() - {"generic_oauth2"}))
def test_every_vendor_has_an_address_that_calls_begin_with(provider: str) -> None:
    profile = PROFILES[provider]
    assert profile.limits.api in profile.apis


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_told_apart_whatever_its_dress(name: str) -> None:
    provider, reply, rule, step, scope = LIMITS[name]
    verdict = judged(reply, provider)
    assert (verdict.result, verdict.category) == (Result.FAILED, Category.TRANSIENT_RATE_LIMIT)
    assert (verdict.rule, verdict.step, verdict.scope) == (rule, step, scope)
    assert (verdict.health, verdict.refused_before_acting) == (DestinationHealth.HEALTHY, True)
    assert verdict.unclassified is False


@pytest.mark.parametrize("name", LIMITS)
def test_the_wait_that_was_asked_for_is_never_undercut(name: str) -> None:
    provider, reply, *_ = LIMITS[name]
    asking = RawResponse(reply.status, {**reply.headers, "retry-after": ("33",)}, reply.body, reply.text)
    verdict = judged(asking, provider)
    if verdict.limit == "bulk":
        return  # a 200 asks for no wait
    assert verdict.hint_s == 33
    assert verdict.strategy.delay_s(0, draw=0.0, hint_s=verdict.hint_s, daily=verdict.daily) == 33


def test_points_that_are_lacking_tell_the_wait() -> None:
    """502 points asked, 498 available, 50 a second: 80 ms."""
    verdict = judged(RawResponse(200, body=THROTTLED), "shopify")
    assert verdict.hint_s == pytest.approx(0.08)
    assert verdict.strategy.delay_s(0, draw=0.0, hint_s=verdict.hint_s) == pytest.approx(0.08)


def test_a_running_bulk_operation_is_waited_for_outside_of_the_call() -> None:
    verdict = judged(RawResponse(200, body=BULK), "shopify")
    assert (verdict.next, verdict.max_attempts, verdict.limit) == (Next.LATER, 0, "bulk")
    assert verdict.strategy.delay_s(0, draw=0.0) == 30


def test_a_day_that_is_used_up_parks_until_its_reset() -> None:
    reply = RawResponse(429, {"retry-after": "30000"}, body={**ROLLING, "policyName": "DAILY"})
    verdict = judged(reply, "hubspot")
    assert (verdict.daily, verdict.next) == (True, Next.LATER)
    assert verdict.strategy.delay_s(0, draw=0.0, hint_s=verdict.hint_s, daily=verdict.daily) == 30_000


@pytest.mark.parametrize(
    ("provider", "reply", "rule", "category", "health"),
    [
        (
            "netsuite",
            netsuite("ACCT_TEMP_UNAVAILABLE"),
            "maintenance",
            Category.TRANSIENT_SERVER,
            DestinationHealth.UNHEALTHY,
        ),
        (
            "netsuite",
            netsuite("INVALID_LOGIN_ATTEMPT"),
            "session_refused",
            Category.PERMANENT_AUTH,
            DestinationHealth.HEALTHY,
        ),
        (
            "netsuite",
            soap_fault("Server.userException", "<f:insufficientPermissionFault/>"),
            "not_permitted",
            Category.PERMANENT_PERMISSION,
            DestinationHealth.HEALTHY,
        ),
        (
            "salesforce",
            soap_fault("sf:INVALID_SESSION_ID"),
            "session_refused",
            Category.PERMANENT_AUTH,
            DestinationHealth.HEALTHY,
        ),
        (
            "salesforce",
            RawResponse(400, body=[{"errorCode": "UNABLE_TO_LOCK_ROW", "message": "locked"}]),
            "busy",
            Category.TRANSIENT_NETWORK,
            DestinationHealth.HEALTHY,
        ),
        (
            "anthropic",
            RawResponse(
                529, body={"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            ),
            "overloaded",
            Category.TRANSIENT_SERVER,
            DestinationHealth.UNHEALTHY,
        ),
        (
            "openai",
            RawResponse(
                429, body={"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}
            ),
            "out_of_credit",
            Category.PERMANENT_CONFIG,
            DestinationHealth.HEALTHY,
        ),
    ],
)
def test_vendor_failures_beside_limits_are_classified(
    provider: str, reply: RawResponse, rule: str, category: Category, health: DestinationHealth
) -> None:
    verdict = judged(reply, provider)
    assert (verdict.rule, verdict.category, verdict.health) == (rule, category, health)


@pytest.mark.parametrize(
    "provider", ["hubspot", "mercadolibre", "netsuite", "salesforce", "shopify", "stripe"]
)
def test_a_limit_of_one_vendor_means_nothing_in_a_record_of_another(provider: str) -> None:
    record = {"id": 7, "code": "SSS_REQUEST_LIMIT_EXCEEDED", "message": "Throttled", "status": "DAILY"}
    assert judged(RawResponse(200, body=record), provider).result is Result.OK
    assert judged(RawResponse(200, body=[record]), provider).result is Result.OK
