"""What each vendor's dialect hears beyond the fixtures: numbers, merged refusals, and what is no refusal."""

from __future__ import annotations

import pytest

from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse


def listen(
    dialect: str, status: int = 200, body: object = None, **headers: str
) -> tuple[LimitObservation, ...]:
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return parse_limits(dialect, RawResponse(status, named, body), now_epoch_s=None)


def listen_text(dialect: str, status: int, text: str) -> tuple[LimitObservation, ...]:
    return parse_limits(dialect, RawResponse(status, text=text), now_epoch_s=None)


def test_a_header_told_twice_where_no_list_is_defined_is_ignored() -> None:
    for dialect, name, value in (
        ("shopify", "x-shopify-shop-api-call-limit", "32/40"),
        ("hubspot", "x-hubspot-ratelimit-remaining", "7"),
        ("salesforce", "sforce-limit-info", "api-usage=18/5000"),
        ("standard", "x-ratelimit-remaining", "7"),
    ):
        assert len(parse_limits(dialect, RawResponse(200, {name: [value]}), now_epoch_s=None)) == 1
        assert parse_limits(dialect, RawResponse(200, {name: [value, value]}), now_epoch_s=None) == ()


# ---- HubSpot -----------------------------------------------------------------------------------

HUBSPOT = {
    "x_hubspot_ratelimit_max": "190",
    "x_hubspot_ratelimit_remaining": "187",
    "x_hubspot_ratelimit_interval_milliseconds": "10000",
    "x_hubspot_ratelimit_secondly": "19",
    "x_hubspot_ratelimit_secondly_remaining": "0",
    "x_hubspot_ratelimit_daily": "250000",
    "x_hubspot_ratelimit_daily_remaining": "249000",
}
ROLLING = LimitObservation("requests", remaining=187, capacity=190, window_s=10)
DAY = LimitObservation("daily", remaining=249_000, capacity=250_000, window_s=86_400, daily=True)


def test_hubspot_headers() -> None:
    assert listen("hubspot", **HUBSPOT) == (ROLLING, DAY)
    assert listen("hubspot", x_hubspot_ratelimit_remaining="3") == (
        LimitObservation("requests", remaining=3),
    )
    assert listen("hubspot", x_hubspot_ratelimit_max="0", x_hubspot_ratelimit_daily="x") == ()


def policy(name: str) -> dict[str, str]:
    return {"status": "error", "errorType": "RATE_LIMIT", "policyName": name}


def test_hubspot_refusal_joins_what_the_headers_tell() -> None:
    rolling, day = listen("hubspot", 429, policy("TEN_SECONDLY_ROLLING"), **HUBSPOT)
    assert (rolling.remaining, rolling.window_s, rolling.wait_s) == (187, 10, 0)
    assert day == DAY


def test_hubspot_a_spent_day_does_not_refuse_calls_as_such() -> None:
    rolling, day = listen("hubspot", 429, policy("DAILY"), retry_after="3600", **HUBSPOT)
    assert rolling == ROLLING
    assert (day.limit, day.wait_s, day.daily) == ("daily", 3600, True)
    (day,) = listen("hubspot", 429, policy("DAILY"))
    assert day == LimitObservation("daily", window_s=86_400, wait_s=0, daily=True, code="DAILY")


def test_hubspot_search_is_known_by_the_headers_it_lacks() -> None:
    (item,) = listen("hubspot", 429, policy("SECONDLY"))
    assert item == LimitObservation("search", window_s=1, wait_s=0, code="SECONDLY")
    rolling, _ = listen("hubspot", 429, policy("SECONDLY"), **HUBSPOT)
    assert (rolling.limit, rolling.refused) == ("requests", True)


def test_hubspot_unknown_policy_and_other_statuses() -> None:
    assert listen("hubspot", 429, policy("HOURLY")) == (LimitObservation("requests", wait_s=0),)
    assert listen("hubspot", 423) == (LimitObservation("object", wait_s=2),)
    assert listen("hubspot", 423, retry_after="5") == (LimitObservation("object", wait_s=5),)
    assert listen("hubspot", 477, retry_after="600") == (LimitObservation("requests", wait_s=600),)
    assert listen("hubspot", 200, policy("DAILY")) == ()


# ---- Salesforce --------------------------------------------------------------------------------


def limit_exceeded(message: str) -> list[dict[str, str]]:
    return [{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": message}]


def test_salesforce_usage() -> None:
    day = LimitObservation("daily", remaining=4982, capacity=5000, window_s=86_400, daily=True)
    app = LimitObservation("app", remaining=233, capacity=250, window_s=86_400, daily=True)
    assert listen("salesforce", sforce_limit_info="api-usage=18/5000") == (day,)
    both = "api-usage=18/5000; per-app-api-usage=17/250(appName=sample-connected-app)"
    assert listen("salesforce", sforce_limit_info=both) == (day, app)
    assert listen("salesforce", sforce_limit_info="per-app-api-usage=17/250(appName=x)") == (app,)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "api-usage=18",
        "api-usage=18/0",
        "api-usage=-1/5000",
        "api-usage=18/5000, api-usage=0/9",
        "x-api-usage=18/5000",
        "api-usage=99999999999/5000",
    ],
)
def test_salesforce_usage_that_cannot_be_read(value: str) -> None:
    assert listen("salesforce", sforce_limit_info=value) == ()


def test_salesforce_the_name_of_an_app_is_not_read_as_usage() -> None:
    usage = "api-usage=18/5000; per-app-api-usage=17/250(appName=x); api-usage=5000/5000)"
    day, app = listen("salesforce", sforce_limit_info=usage)
    assert (day.remaining, app.remaining) == (4982, 233)


@pytest.mark.parametrize(
    ("message", "limit", "daily"),
    [
        ("TotalRequests Limit exceeded.", "daily", True),
        ("ConcurrentRequests (Concurrent API Requests) Limit exceeded.", "concurrency", False),
        ("ConcurrentPerOrgLongTxn Limit exceeded.", "concurrency", False),
        ("", "requests", False),
        ("x" * 100_000, "requests", False),
    ],
)
@pytest.mark.parametrize("status", [403, 429, 503])
def test_salesforce_refusal(message: str, limit: str, daily: bool, status: int) -> None:
    (item,) = listen("salesforce", status, limit_exceeded(message))
    assert (item.limit, item.daily, item.wait_s) == (limit, daily, 0)
    assert item.code == "REQUEST_LIMIT_EXCEEDED"


def test_salesforce_refused_day_is_one_item() -> None:
    body = limit_exceeded("TotalRequests Limit exceeded.")
    (day,) = listen("salesforce", 403, body, sforce_limit_info="api-usage=5001/5000")
    assert (day.remaining, day.capacity, day.wait_s, day.daily) == (0, 5000, 0, True)


def test_salesforce_what_is_no_refusal() -> None:
    assert listen("salesforce", 200, limit_exceeded("TotalRequests Limit exceeded.")) == ()
    assert listen("salesforce", 403, [{"errorCode": "INSUFFICIENT_ACCESS", "message": "no"}]) == ()
    assert listen_text("salesforce", 500, "<faultcode>sf:INVALID_SESSION_ID</faultcode>") == ()
    assert listen_text("salesforce", 200, "<Note__c>REQUEST_LIMIT_EXCEEDED</Note__c>") == ()


# ---- Stripe ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        ("global-rate", "requests"),
        ("global-concurrency", "concurrency"),
        ("endpoint-rate", "endpoint"),
        ("endpoint-concurrency", "endpoint"),
        ("resource-specific", "object"),
    ],
)
def test_stripe_reasons(reason: str, limit: str) -> None:
    (item,) = listen("stripe", 429, stripe_rate_limited_reason=reason, retry_after="3")
    assert item == LimitObservation(limit, wait_s=3, code=reason)


def test_stripe_an_object_lock_does_not_slow_the_connection() -> None:
    lock = {"error": {"code": "lock_timeout", "type": "invalid_request_error"}}
    (item,) = listen("stripe", 429, lock)
    assert item.limit == "object"
    (item,) = listen("stripe", 429, lock, stripe_rate_limited_reason="global-rate")
    assert item.limit == "requests"


def test_stripe_a_reason_of_tomorrow_is_a_refusal_all_the_same() -> None:
    assert listen("stripe", 429, stripe_rate_limited_reason="lunar-phase") == (
        LimitObservation("requests", wait_s=0),
    )
    assert listen("stripe", 200, stripe_rate_limited_reason="global-rate") == ()


# ---- NetSuite ----------------------------------------------------------------------------------

RESTLET_TEXT = "error code: SSS_REQUEST_LIMIT_EXCEEDED\nerror message: Request limit exceeded."


def test_netsuite_restlet() -> None:
    refusal = (LimitObservation("concurrency", wait_s=0, code="SSS_REQUEST_LIMIT_EXCEEDED"),)
    body = {"error": {"code": "SSS_REQUEST_LIMIT_EXCEEDED", "message": "Request limit exceeded."}}
    assert listen("netsuite", 400, body) == refusal
    body = {"type": "error.SuiteScriptError", "name": "SSS_REQUEST_LIMIT_EXCEEDED"}
    assert listen("netsuite", 400, body) == refusal
    assert listen_text("netsuite", 400, RESTLET_TEXT) == refusal


def test_netsuite_what_is_no_refusal() -> None:
    other = {"o:errorDetails": [{"o:errorCode": "INVALID_CONTENT"}]}
    assert listen("netsuite", 400, other) == ()
    assert listen("netsuite", 200, {"code": "SSS_REQUEST_LIMIT_EXCEEDED"}) == ()
    assert listen_text("netsuite", 200, RESTLET_TEXT) == ()
    record = "<listRel:record><listRel:code>WS_REQUEST_BLOCKED</listRel:code></listRel:record>"
    assert listen_text("netsuite", 200, record) == ()


def test_netsuite_the_second_detail_counts_too() -> None:
    details = [{"o:errorCode": "USER_ERROR"}, {"o:errorCode": "SSS_REQUEST_LIMIT_EXCEEDED"}]
    (item,) = listen("netsuite", 400, {"o:errorDetails": details}, retry_after="4")
    assert (item.limit, item.wait_s) == ("concurrency", 4)


@pytest.mark.parametrize("name", ["exceededRequestLimitFault", "ExceededConcurrentRequestLimitFault"])
def test_netsuite_soap_fault_by_its_name(name: str) -> None:
    text = f"<soapenv:Fault><detail><platformFaults:{name} xmlns='x'/></detail></soapenv:Fault>"
    (item,) = listen_text("netsuite", 500, text)
    assert item.limit == "concurrency"
    assert item.code == name[0].upper() + name[1:]


def test_netsuite_soap_status_of_an_operation() -> None:
    text = (
        '<platformCore:status isSuccess="false"><platformCore:statusDetail type="ERROR">'
        "<platformCore:code>WS_CONCUR_SESSION_DISALLWD</platformCore:code></platformCore:statusDetail>"
    )
    (item,) = listen_text("netsuite", 200, text)
    assert item.code == "WS_CONCUR_SESSION_DISALLWD"


@pytest.mark.parametrize(
    ("kind", "own_limit", "expected"),
    [
        (
            "integrationSpecific",
            2,
            (LimitObservation("concurrency", capacity=2), LimitObservation("account", capacity=5)),
        ),
        (
            "accountLimit",
            None,
            (LimitObservation("concurrency", capacity=3), LimitObservation("account", capacity=5)),
        ),
        ("internal", None, (LimitObservation("account", capacity=5),)),
        ("integrationSpecific", None, (LimitObservation("account", capacity=5),)),
        (["accountLimit"], None, (LimitObservation("account", capacity=5),)),
    ],
)
def test_netsuite_governance_limits(
    kind: object, own_limit: object, expected: tuple[LimitObservation, ...]
) -> None:
    body = {
        "accountConcurrencyLimit": 5,
        "accountUnallocatedConcurrencyLimit": 3,
        "integrationConcurrencyLimit": own_limit,
        "integrationLimitType": kind,
    }
    assert listen("netsuite", body=body) == expected
    assert listen("netsuite", 403, body) == ()


# ---- Mercado Libre -----------------------------------------------------------------------------


def test_mercadolibre() -> None:
    assert listen_text("mercadolibre", 429, "local_rate_limited\n")[0].code == "local_rate_limited"
    assert listen("mercadolibre", 403, {"error": "local_rate_limited"})[0].refused
    (item,) = listen("mercadolibre", 429, {"message": "local_rate_limited"}, retry_after="7")
    assert item == LimitObservation("requests", wait_s=7, code="local_rate_limited")
    assert listen("mercadolibre", 429, {"message": "too_many_requests"}) == (
        LimitObservation("requests", wait_s=0),
    )
    assert listen("mercadolibre", 200, {"code": "local_rate_limited"}) == ()
