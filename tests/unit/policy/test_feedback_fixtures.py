"""Every fixture of reference/gate.md §6.1, and what its dialect hears in it."""

from __future__ import annotations

import pytest

from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.feedback.dialect import DIALECTS, parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse

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
LOCK = {"error": {"code": "lock_timeout"}}
PARTIAL = {"items": [{"index": 0, "status": 201}, {"index": 2, "status": 422}]}


def netsuite_fault(code: str) -> str:
    return (
        '<?xml version="1.0"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/">'
        "<soapenv:Body><soapenv:Fault><faultcode>soapenv:Server.userException</faultcode>"
        "<faultstring>refused</faultstring><detail><platformFaults:fault>"
        f"<platformFaults:code>{code}</platformFaults:code>"
        "</platformFaults:fault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>"
    )


FIXTURES = {
    "shopify-throttled": (
        "shopify",
        RawResponse(200, body=THROTTLED),
        LimitObservation(
            "points",
            remaining=498,
            capacity=1000,
            per_s=50,
            wait_s=pytest.approx(0.08),
            requested=502,
            code="THROTTLED",
        ),
    ),
    "shopify-bulk": (
        "shopify",
        RawResponse(200, body=BULK),
        LimitObservation("bulk", wait_s=0.0, code="OPERATION_IN_PROGRESS"),
    ),
    "hubspot": (
        "hubspot",
        RawResponse(429, body=ROLLING),
        LimitObservation("requests", window_s=10.0, wait_s=0.0, code="TEN_SECONDLY_ROLLING"),
    ),
    "netsuite-rest-400": (
        "netsuite",
        RawResponse(400, body={"o:errorDetails": [{"o:errorCode": "SSS_REQUEST_LIMIT_EXCEEDED"}]}),
        LimitObservation("concurrency", wait_s=0.0, code="SSS_REQUEST_LIMIT_EXCEEDED"),
    ),
    "netsuite-rest-other-spelling": (
        "netsuite",
        RawResponse(400, body={"o:errorDetails": [{"o:errorCode": "CONCURRENT_REQUEST_LIMIT_EXCEEDED"}]}),
        LimitObservation("concurrency", wait_s=0.0, code="CONCURRENT_REQUEST_LIMIT_EXCEEDED"),
    ),
    "netsuite-rest-429": ("netsuite", RawResponse(429), LimitObservation("concurrency", wait_s=0.0)),
    "netsuite-soap-blocked": (
        "netsuite",
        RawResponse(500, text=netsuite_fault("WS_REQUEST_BLOCKED")),
        LimitObservation("concurrency", wait_s=0.0, code="WS_REQUEST_BLOCKED"),
    ),
    "netsuite-soap-session": (
        "netsuite",
        RawResponse(500, text=netsuite_fault("WS_CONCUR_SESSION_DISALLWD")),
        LimitObservation("concurrency", wait_s=0.0, code="WS_CONCUR_SESSION_DISALLWD"),
    ),
    "netsuite-soap-out-of-service": (
        "netsuite",
        RawResponse(500, text=netsuite_fault("ACCT_TEMP_UNAVAILABLE")),
        None,  # it says nothing of a limit: to make do with fewer slots would not help
    ),
    "salesforce-soap": (
        "salesforce",
        RawResponse(500, text=SALESFORCE_FAULT),
        LimitObservation("concurrency", wait_s=0.0, code="REQUEST_LIMIT_EXCEEDED"),
    ),
    "stripe-rate": (
        "stripe",
        RawResponse(
            429, {"stripe-rate-limited-reason": ["global-rate"]}, {"error": {"type": "rate_limit_error"}}
        ),
        LimitObservation("requests", wait_s=0.0, code="global-rate"),
    ),
    "stripe-lock": (
        "stripe",
        RawResponse(429, body=LOCK),
        LimitObservation("object", wait_s=0.0, code="lock_timeout"),
    ),
    "mercadolibre-text": (
        "mercadolibre",
        RawResponse(429, {"content-type": ["text/plain"]}, text="local_rate_limited"),
        LimitObservation("requests", wait_s=0.0, code="local_rate_limited"),
    ),
    "mercadolibre-json": (
        "mercadolibre",
        RawResponse(429, body={"code": "local_rate_limited", "status": 429}),
        LimitObservation("requests", wait_s=0.0, code="local_rate_limited"),
    ),
}


@pytest.mark.parametrize(("dialect", "reply", "expected"), FIXTURES.values(), ids=FIXTURES)
def test_fixture(dialect: str, reply: RawResponse, expected: LimitObservation | None) -> None:
    assert parse_limits(dialect, reply, now_epoch_s=None) == ((expected,) if expected else ())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_partial_failure_says_nothing_of_limits(dialect: str) -> None:
    assert parse_limits(dialect, RawResponse(207, body=PARTIAL), now_epoch_s=None) == ()


def test_scenario_502_points_asked_498_available_50_a_second_makes_80_ms() -> None:
    (points,) = parse_limits("shopify", RawResponse(200, body=THROTTLED), now_epoch_s=None)
    assert points.refused
    assert points.wait_s == pytest.approx(0.080)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("status", [429, 503])
def test_scenario_retry_after_120_makes_120_s_in_every_dialect(dialect: str, status: int) -> None:
    (item,) = parse_limits(dialect, RawResponse(status, {"retry-after": ["120"]}), now_epoch_s=None)
    assert item.wait_s == 120
    assert item.refused


@pytest.mark.parametrize("dialect", DIALECTS)
def test_scenario_retry_after_2_makes_2_s(dialect: str) -> None:
    (item,) = parse_limits(dialect, RawResponse(429, {"retry-after": ["2"]}), now_epoch_s=None)
    assert item.wait_s == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_a_refusing_status_refuses(dialect: str) -> None:
    for status in (200, 202, 301, 400, 401, 404, 413, 500, 502, 504):
        assert parse_limits(dialect, RawResponse(status, {"retry-after": ["120"]}), now_epoch_s=None) == ()
    assert parse_limits(dialect, RawResponse(503), now_epoch_s=None) == ()  # an outage
    (item,) = parse_limits(dialect, RawResponse(429), now_epoch_s=None)
    assert item.wait_s == 0.0


def test_an_unknown_dialect_names_the_known_ones() -> None:
    with pytest.raises(
        InvalidConfigError, match=r"'klingon' is no dialect.*hint: use one of hubspot, .*standard"
    ):
        parse_limits("klingon", RawResponse(200), now_epoch_s=None)
