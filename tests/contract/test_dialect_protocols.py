"""GraphQL and SOAP: the body of a response counts before its status.

Spec: C3, C9.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.policy.calls.classify.verdict import Result, Step
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import judged, netsuite_record, own_rules, pattern, soap_fault

REQUEST, SERVER = Category.PERMANENT_REQUEST, Category.TRANSIENT_SERVER


def graphql(code: str | None = None, status: int = 200, **more: Any) -> RawResponse:
    error: dict[str, Any] = {"message": "no"}
    if code:
        error["extensions"] = {"code": code}
    return RawResponse(status, body={"errors": [error], **more})


# ---- GraphQL


@pytest.mark.parametrize(
    ("code", "category", "health"),
    [
        ("ACCESS_DENIED", Category.PERMANENT_PERMISSION, DestinationHealth.HEALTHY),
        ("UNAUTHENTICATED", Category.PERMANENT_AUTH, DestinationHealth.HEALTHY),
        ("MAX_COST_EXCEEDED", REQUEST, DestinationHealth.HEALTHY),
        ("GRAPHQL_VALIDATION_FAILED", REQUEST, DestinationHealth.HEALTHY),
        ("INTERNAL_SERVER_ERROR", SERVER, DestinationHealth.UNHEALTHY),
        ("undefinedField", REQUEST, DestinationHealth.HEALTHY),
        (None, REQUEST, DestinationHealth.HEALTHY),
    ],
)
def test_a_graphql_error_in_a_200_is_a_failure(
    code: str | None, category: Category, health: DestinationHealth
) -> None:
    verdict = judged(graphql(code), "shopify")
    assert (verdict.result, verdict.step) == (Result.FAILED, Step.PROTOCOL_BODY)
    assert (verdict.category, verdict.health, verdict.unclassified) == (category, health, False)


def test_an_unknown_error_of_a_query_that_ran_is_flagged() -> None:
    verdict = judged(graphql("SOMETHING_NEW", data=None), "shopify")
    assert (verdict.category, verdict.unclassified) == (Category.TRANSIENT_NETWORK, True)
    assert (verdict.code, verdict.health) == ("SOMETHING_NEW", DestinationHealth.HEALTHY)


def test_data_that_came_beside_an_error_is_not_asked_for_again() -> None:
    verdict = judged(graphql("INTERNAL_SERVER_ERROR", data={"shop": {"id": 1}, "orders": None}), "shopify")
    assert (verdict.result, verdict.next) == (Result.PARTIAL, Next.OVER)
    assert (verdict.health, verdict.refused_before_acting) == (DestinationHealth.HEALTHY, False)


def test_errors_of_other_kinds_of_api_are_not_taken_for_graphql() -> None:
    json_api = RawResponse(404, body={"errors": [{"message": "no such order", "status": "404"}]})
    assert judged(json_api).rule == "status 404"
    rails = RawResponse(422, body={"errors": {"title": ["can't be blank"]}})
    assert judged(rails, "shopify").rule == "status 422"
    assert judged(RawResponse(200, body={"errors": []})).result is Result.OK
    assert judged(RawResponse(200, body={"errors": None, "data": {}})).result is Result.OK


def test_words_beside_a_code_are_about_the_query_and_without_one_they_tell() -> None:
    errors = [{"message": "Field 'rateLimit' doesn't exist", "extensions": {"code": "undefinedField"}}]
    assert judged(RawResponse(200, body={"errors": errors}), "shopify").category is REQUEST
    verdict = judged(RawResponse(200, body={"errors": [{"message": "Rate limit exceeded"}]}), "shopify")
    assert (verdict.rule, verdict.category) == ("rate_limit_errors", Category.TRANSIENT_RATE_LIMIT)


def test_shopifys_own_word_counts_where_no_code_is_told() -> None:
    verdict = judged(RawResponse(200, body={"errors": [{"message": "Throttled"}]}))
    assert (verdict.rule, verdict.step, verdict.code) == (
        "rate_limit_errors",
        Step.PROTOCOL_BODY,
        "THROTTLED",
    )


def test_warnings_beside_a_result_are_no_graphql() -> None:
    body = {"results": [{"id": 1}], "errors": [{"message": "one row was skipped"}]}
    assert judged(RawResponse(200, body=body)).result is Result.OK


def test_a_rule_of_ones_own_sees_the_codes_of_a_200() -> None:
    rules = own_rules(
        pattern(patterns=[], provider_codes=["THROTTLED"], strategy="aggressive"), provider="shopify"
    )
    verdict = judged(graphql("THROTTLED"), rules)
    assert (verdict.rule, verdict.step) == ("mine", Step.PROTOCOL_BODY)


# ---- SOAP


@pytest.mark.parametrize(
    ("fault", "category", "health"),
    [
        ("soapenv:Client", REQUEST, DestinationHealth.HEALTHY),
        ("env:Sender", REQUEST, DestinationHealth.HEALTHY),
        ("soapenv:Server.userException", REQUEST, DestinationHealth.HEALTHY),
        ("soapenv:Server", SERVER, DestinationHealth.UNHEALTHY),
        ("env:Receiver", SERVER, DestinationHealth.UNHEALTHY),
    ],
)
def test_a_fault_says_who_is_to_blame_and_500_does_not(
    fault: str, category: Category, health: DestinationHealth
) -> None:
    verdict = judged(soap_fault(fault))
    assert (verdict.category, verdict.health, verdict.step) == (category, health, Step.PROTOCOL_BODY)


def test_soap_12_is_read_too() -> None:
    text = (
        '<env:Envelope xmlns:env="http://www.w3.org/2003/05/soap-envelope"><env:Body><env:Fault><env:Code>'
        "<env:Value>env:Sender</env:Value></env:Code><env:Reason><env:Text>no such record</env:Text>"
        "</env:Reason></env:Fault></env:Body></env:Envelope>"
    )
    verdict = judged(RawResponse(500, text=text))
    assert (verdict.category, verdict.code) == (REQUEST, "Sender")
    assert "no such record" in verdict.why


def test_a_vendors_own_fault_code_that_nobody_knows_is_flagged() -> None:
    verdict = judged(soap_fault("sf:SOMETHING_NEW"), "salesforce")
    assert (verdict.category, verdict.unclassified) == (Category.TRANSIENT_NETWORK, True)
    assert verdict.health is DestinationHealth.HEALTHY


def netsuite_list(*records: str) -> RawResponse:
    return RawResponse(
        200, text=f'<?xml version="1.0"?><m:writeResponseList>{"".join(records)}</m:writeResponseList>'
    )


def test_records_of_a_netsuite_list_fail_one_by_one() -> None:
    reply = netsuite_list(netsuite_record(True), netsuite_record(False, "DUP_RCRD"), netsuite_record(True))
    verdict = judged(reply, "netsuite")
    assert verdict.result is Result.PARTIAL
    assert [(item.index, item.code) for item in verdict.failed_items] == [(1, "DUP_RCRD")]
    whole_verdict = judged(
        netsuite_list(netsuite_record(False, "DUP_RCRD"), netsuite_record(False, "DUP_RCRD")), "netsuite"
    )
    assert (whole_verdict.result, whole_verdict.category, whole_verdict.code) == (
        Result.FAILED,
        REQUEST,
        "DUP_RCRD",
    )
    assert judged(netsuite_list(netsuite_record(True)), "netsuite").result is Result.OK


def test_a_document_about_faults_is_none() -> None:
    text = "<report><item>FaultList</item><note>&lt;Fault&gt;</note><Faults>2</Faults></report>"
    assert judged(RawResponse(200, text=text)).result is Result.OK
