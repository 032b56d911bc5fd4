"""GraphQL, SOAP and batches: what their bodies say stands before the status (C3, C9).

Over 400 lines because it is one table of protocols.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.policy.calls.classify.body import LARGEST_JUDGED, LazyResponse
from fairlead.policy.calls.classify.verdict import Result, Step, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import judged, own, pattern, soap_fault

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
    told = judged(RawResponse(200, body={"errors": [{"message": "Rate limit exceeded"}]}), "shopify")
    assert (told.rule, told.category) == ("rate_limit_errors", Category.TRANSIENT_RATE_LIMIT)


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
    rules = own(pattern(patterns=[], provider_codes=["THROTTLED"], strategy="aggressive"), provider="shopify")
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


def record(success: bool, code: str = "") -> str:
    detail = (
        f"<c:statusDetail><c:code>{code}</c:code><c:message>no</c:message></c:statusDetail>" if code else ""
    )
    return (
        f'<m:writeResponse><c:status isSuccess="{str(success).lower()}">{detail}</c:status></m:writeResponse>'
    )


def netsuite_list(*records: str) -> RawResponse:
    return RawResponse(
        200, text=f'<?xml version="1.0"?><m:writeResponseList>{"".join(records)}</m:writeResponseList>'
    )


def test_records_of_a_netsuite_list_fail_one_by_one() -> None:
    reply = netsuite_list(record(True), record(False, "DUP_RCRD"), record(True))
    verdict = judged(reply, "netsuite")
    assert verdict.result is Result.PARTIAL
    assert [(item.index, item.code) for item in verdict.failed_items] == [(1, "DUP_RCRD")]
    whole = judged(netsuite_list(record(False, "DUP_RCRD"), record(False, "DUP_RCRD")), "netsuite")
    assert (whole.result, whole.category, whole.code) == (Result.FAILED, REQUEST, "DUP_RCRD")
    assert judged(netsuite_list(record(True)), "netsuite").result is Result.OK


def test_a_document_about_faults_is_none() -> None:
    text = "<report><item>FaultList</item><note>&lt;Fault&gt;</note><Faults>2</Faults></report>"
    assert judged(RawResponse(200, text=text)).result is Result.OK


# ---- batches


def test_207_with_1_of_3_failed_retries_one_item() -> None:
    """207 with 1 of 3 failed ⇒ one item retried (what the verdict says of it)."""
    items = [{"index": 0, "status": 201}, {"index": 1, "status": 201}, {"index": 2, "status": 503}]
    verdict = judged(RawResponse(207, body={"items": items}))
    assert (verdict.result, verdict.health) == (Result.PARTIAL, DestinationHealth.HEALTHY)
    assert [(item.index, item.code) for item in verdict.items_to_retry] == [(2, "503")]
    assert (verdict.next, verdict.max_attempts) == (Next.RETRY, 3)


def test_the_fixture_of_207_names_its_failed_item_which_no_retry_mends() -> None:
    verdict = judged(
        RawResponse(207, body={"items": [{"index": 0, "status": 201}, {"index": 2, "status": 422}]})
    )
    assert [(item.index, item.category) for item in verdict.failed_items] == [(2, REQUEST)]
    assert (verdict.items_to_retry, verdict.next) == ((), Next.OVER)


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        ([{"status": 200}, {"status": 429}], [(1, "429")]),
        ({"results": [{"statusCode": 404, "error": {"code": "GONE"}}, {"statusCode": 200}]}, [(0, "GONE")]),
        ({"responses": [{"httpStatusCode": 204}, {"httpStatusCode": 409}]}, [(1, "409")]),
        ({"items": [{"index": 7, "code": 500, "id": "x"}]}, [(7, "500")]),
    ],
)
def test_items_are_found_in_every_shape(body: Any, failed: list[Any]) -> None:
    verdict = judged(RawResponse(207, body=body))
    assert [(item.index, item.code) for item in verdict.failed_items] == failed
    assert verdict.unclassified is False


def test_a_207_of_which_all_was_done_is_a_success() -> None:
    assert judged(RawResponse(207, body={"items": [{"status": 201}, {"status": 200}]})).result is Result.OK


@pytest.mark.parametrize(
    "body",
    [None, {}, {"items": "many"}, {"items": [{"index": 0}]}, "text", 7, [{"status": 500}] * 10_001],
    ids=["none", "empty", "no list", "no status", "text", "number", "too many"],
)
def test_a_207_that_cannot_be_read_is_flagged_and_nothing_is_sent_again(body: Any) -> None:
    verdict = judged(RawResponse(207, body=body))
    assert (verdict.result, verdict.unclassified) == (Result.PARTIAL, True)
    assert (verdict.items_to_retry, verdict.next) == ((), Next.OVER)


def test_hubspot_names_failed_items_by_id() -> None:
    error = {"status": "error", "category": "VALIDATION_ERROR", "context": {"ids": ["17", "18"]}}
    body = {"status": "COMPLETE", "results": [{"id": "16"}], "numErrors": 1, "errors": [error]}
    verdict = judged(RawResponse(207, body=body), "hubspot")
    assert [(item.ref, item.index) for item in verdict.failed_items] == [("17", None), ("18", None)]
    assert {(item.code, item.category) for item in verdict.failed_items} == {("VALIDATION_ERROR", REQUEST)}


def test_salesforce_tells_of_a_part_in_a_200() -> None:
    locked = {"statusCode": "UNABLE_TO_LOCK_ROW", "message": "locked"}
    missing = {"statusCode": "REQUIRED_FIELD_MISSING", "message": "name"}
    body = [
        {"id": "1", "success": True, "errors": []},
        {"success": False, "errors": [locked]},
        {"success": False, "errors": [missing]},
    ]
    verdict = judged(RawResponse(200, body=body), "salesforce")
    assert [(item.index, item.code) for item in verdict.items_to_retry] == [(1, "UNABLE_TO_LOCK_ROW")]
    assert len(verdict.failed_items) == 2
    composite = {
        "compositeResponse": [
            {"httpStatusCode": 201, "referenceId": "a", "body": {}},
            {"httpStatusCode": 400, "referenceId": "b", "body": [{"errorCode": "NOT_FOUND", "message": "-"}]},
        ]
    }
    (item,) = judged(RawResponse(200, body=composite), "salesforce").failed_items
    assert (item.index, item.ref, item.code, item.category) == (1, "b", "NOT_FOUND", REQUEST)
    assert judged(RawResponse(200, body=body), "stripe").result is Result.OK


def graph(name: str, done: Any, *parts: tuple[int, str]) -> dict[str, Any]:
    """An answer to one graph, each part a status and its code."""
    told = [
        {
            "httpStatusCode": status,
            "referenceId": code,
            "body": [{"errorCode": code}] if code else {"id": "1"},
        }
        for status, code in parts
    ]
    return {"graphId": name, "isSuccessful": done, "graphResponse": {"compositeResponse": told}}


def test_a_graph_of_salesforce_that_failed_in_a_200_is_an_item_that_failed() -> None:
    halted = (400, "PROCESSING_HALTED")
    body = {
        "graphs": [
            graph("done", True, (201, ""), (201, "")),
            graph("locked", False, halted, (400, "UNABLE_TO_LOCK_ROW"), halted),
            graph("wrong", False, halted, (400, "INVALID_EMAIL_ADDRESS")),
            graph("halted", False, halted, halted),
            graph("bare", False),
            {"graphId": "odd", "isSuccessful": False, "graphResponse": None},
            graph("unsaid", None, (201, ""), (404, "NOT_FOUND")),
        ]
    }
    verdict = judged(RawResponse(200, body=body), "salesforce")
    assert (verdict.result, verdict.health) == (Result.PARTIAL, DestinationHealth.HEALTHY)
    assert [(item.index, item.ref, item.code) for item in verdict.failed_items] == [
        (1, "locked", "UNABLE_TO_LOCK_ROW"),
        (2, "wrong", "INVALID_EMAIL_ADDRESS"),
        (3, "halted", "PROCESSING_HALTED"),
        (4, "bare", "failed"),
        (5, "odd", "failed"),
        (6, "unsaid", "NOT_FOUND"),
    ]
    assert [item.ref for item in verdict.items_to_retry] == ["locked"]
    assert judged(came(json.dumps(body)), "salesforce") == verdict
    done = {"graphs": [graph("a", True, (201, "")), graph("b", True, (200, ""))]}
    assert judged(RawResponse(200, body=done), "salesforce").result is Result.OK
    assert (
        judged(RawResponse(200, body={"graphs": [graph("bare", False)]}), "salesforce").result
        is Result.PARTIAL
    )
    assert judged(came('{"graphs": [{"isSuccessful": false}]}'), "salesforce").result is Result.PARTIAL
    assert judged(RawResponse(200, body=body), "stripe").result is Result.OK


def test_ones_own_rule_for_an_items_code_outranks_the_providers() -> None:
    locked = {"statusCode": "UNABLE_TO_LOCK_ROW", "message": "locked"}
    reply = RawResponse(200, body=[{"success": True}, {"success": False, "errors": [locked]}])
    assert len(judged(reply, "salesforce").items_to_retry) == 1
    never = pattern(patterns=[], provider_codes=["UNABLE_TO_LOCK_ROW"], strategy="none")
    assert judged(reply, own(never, provider="salesforce")).items_to_retry == ()


def test_an_item_is_judged_by_ones_own_rules_too() -> None:
    rules = own(
        pattern(patterns=[], provider_codes=["BUSY"], strategy="constant", category="transient_network")
    )
    body = {"items": [{"status": 400, "code": "BUSY"}, {"status": 400, "code": "WRONG"}]}
    verdict = judged(
        RawResponse(207, body={"items": [{**item, "statusCode": 400} for item in body["items"]]}), rules
    )
    assert [item.code for item in verdict.items_to_retry] == ["BUSY"]


# ---- what stands beyond what is read


def came(text: str) -> RawResponse:
    """An answer with status 200, as the pipeline judges it."""
    return LazyResponse(200, {}, text.encode()).judged()


def is_unreadable_part(verdict: Verdict) -> bool:
    """That some failed is told, and no list that would pass for all of them."""
    found = (verdict.result, verdict.failed_items, verdict.unclassified)
    return found == (Result.PARTIAL, (), True) and "cannot be read" in verdict.why


@pytest.mark.parametrize("size", [70_000, 300_000, LARGEST_JUDGED + 1])
def test_a_record_that_failed_far_behind_is_not_taken_for_done(size: int) -> None:
    done = record(True).replace("</m:writeResponse>", f"<x>{'x' * 500}</x></m:writeResponse>")
    done *= size // 500
    for text in (done + record(False, "A"), record(False, "A") + done + record(False, "B")):
        assert is_unreadable_part(judged(came(f"<e>{text}</e>"), "netsuite"))
    assert judged(came(f"<e>{done}</e>"), "netsuite").result is Result.OK
    one = judged(came(f"<e>{record(False, 'A')}{done}</e>"), "netsuite")
    assert [item.index for item in one.failed_items] == [0], "all that failed was read"


def test_a_long_answer_of_which_nothing_was_done_is_a_failure() -> None:
    verdict = judged(came(f"<e>{record(False, 'A') * 2000}</e>"), "netsuite")
    assert (verdict.result, verdict.category) == (Result.FAILED, REQUEST)


def test_an_operation_without_records_that_failed_is_a_failure() -> None:
    verdict = judged(
        RawResponse(200, text='<e><m:searchResult><c:status isSuccess="false"/></m:searchResult></e>')
    )
    assert (verdict.result, verdict.category) == (Result.FAILED, REQUEST)


def test_an_operation_whose_status_stands_far_behind_is_not_taken_for_done() -> None:
    assert is_unreadable_part(judged(came(f"<e>{'x' * 70_000}{record(False)}</e>"), "netsuite"))


def test_of_a_large_answer_of_salesforce_failures_are_seen() -> None:
    fill = "x" * LARGEST_JUDGED
    rows = [{"success": True, "errors": [], "id": fill}, {"success": False, "errors": [], "id": None}]
    parts = [{"httpStatusCode": 200, "body": fill}, {"httpStatusCode": 404, "body": []}]
    results = {"hasErrors": True, "results": [{"statusCode": 200, "result": fill}, {"statusCode": 400}]}
    graphs = {"graphs": [graph("a", True, (201, fill)), {"graphId": "b", "isSuccessful": False}]}
    for body in (rows, {"compositeResponse": parts}, results, graphs):
        for text in (json.dumps(body), json.dumps(body, separators=(",", ":"))):
            assert is_unreadable_part(judged(came(text), "salesforce"))
    results |= {"hasErrors": False, "results": [{"statusCode": 200, "result": fill}]}
    found = {"records": [{"success": False}, fill]}
    graphs["graphs"].pop()
    for body in (rows[:1], {"compositeResponse": parts[:1]}, results, found, graphs):
        assert judged(came(json.dumps(body)), "salesforce").result is Result.OK


def test_every_mutation_and_every_user_error_counts() -> None:
    error = {"field": ["a", "7"], "message": "no", "code": "TAKEN"}
    done: dict[str, Any] = {f"m{number}": {"userErrors": []} for number in range(100)}
    late = judged(came(json.dumps({"data": {**done, "last": {"userErrors": [error]}}})), "shopify")
    assert [item.index for item in late.failed_items] == [7]
    errors = [{"field": ["a", str(number)], "message": "no"} for number in range(250)]
    many = judged(came(json.dumps({"data": {"m": {"userErrors": errors}}})), "shopify")
    assert [item.index for item in many.failed_items] == list(range(250))
    too_many = judged(RawResponse(200, body={"data": {"m": {"userErrors": [error] * 10_001}}}), "shopify")
    assert is_unreadable_part(too_many)


def test_of_a_large_answer_of_shopify_user_errors_are_seen() -> None:
    told = {"field": ["a", "7"], "message": "no"}
    for name, errors in (("userErrors", [told]), ("mediaUserErrors", ["x"])):
        body = {"data": {"m": {"fill": "x" * LARGEST_JUDGED, name: errors}, "n": {"fill": "userErrors"}}}
        for text in (json.dumps(body), json.dumps(body, indent=2)):
            assert is_unreadable_part(judged(came(text), "shopify"))
        body["data"]["m"][name] = []
        assert judged(came(json.dumps(body)), "shopify").result is Result.OK


def test_data_behind_many_fields_without_any_is_data_all_the_same() -> None:
    data = {f"f{number}": None for number in range(100)} | {"last": 1}
    assert judged(graphql("X", data=data), "shopify").result is Result.PARTIAL


def test_a_secret_across_the_cut_of_a_message_is_not_shown_in_half() -> None:
    """Half of it has no longer the looks of one."""
    secret = "q0Vx3mT8yKp2Rz7LwN5sB1dF"
    for before in range(270, 301):
        verdict = judged(
            RawResponse(400, body={"message": "no " * (before // 3) + " " * (before % 3) + secret})
        )
        assert "q0Vx" not in verdict.why
