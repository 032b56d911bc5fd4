"""Responses to batches: each item is judged alone, whatever the status of the whole says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.policy.calls.classify.verdict import Result
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import judged, own_rules, pattern, response_of, salesforce_graph

REQUEST, SERVER = Category.PERMANENT_REQUEST, Category.TRANSIENT_SERVER


def graphql(code: str | None = None, status: int = 200, **more: Any) -> RawResponse:
    error: dict[str, Any] = {"message": "no"}
    if code:
        error["extensions"] = {"code": code}
    return RawResponse(status, body={"errors": [error], **more})


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


def test_a_graph_of_salesforce_that_failed_in_a_200_is_an_item_that_failed() -> None:
    halted = (400, "PROCESSING_HALTED")
    body = {
        "graphs": [
            salesforce_graph("done", True, (201, ""), (201, "")),
            salesforce_graph("locked", False, halted, (400, "UNABLE_TO_LOCK_ROW"), halted),
            salesforce_graph("wrong", False, halted, (400, "INVALID_EMAIL_ADDRESS")),
            salesforce_graph("halted", False, halted, halted),
            salesforce_graph("bare", False),
            {"graphId": "odd", "isSuccessful": False, "graphResponse": None},
            salesforce_graph("unsaid", None, (201, ""), (404, "NOT_FOUND")),
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
    assert judged(response_of(json.dumps(body)), "salesforce") == verdict
    done = {"graphs": [salesforce_graph("a", True, (201, "")), salesforce_graph("b", True, (200, ""))]}
    assert judged(RawResponse(200, body=done), "salesforce").result is Result.OK
    assert (
        judged(RawResponse(200, body={"graphs": [salesforce_graph("bare", False)]}), "salesforce").result
        is Result.PARTIAL
    )
    assert judged(response_of('{"graphs": [{"isSuccessful": false}]}'), "salesforce").result is Result.PARTIAL
    assert judged(RawResponse(200, body=body), "stripe").result is Result.OK


def test_ones_own_rule_for_an_items_code_outranks_the_providers() -> None:
    locked = {"statusCode": "UNABLE_TO_LOCK_ROW", "message": "locked"}
    reply = RawResponse(200, body=[{"success": True}, {"success": False, "errors": [locked]}])
    assert len(judged(reply, "salesforce").items_to_retry) == 1
    never = pattern(patterns=[], provider_codes=["UNABLE_TO_LOCK_ROW"], strategy="none")
    assert judged(reply, own_rules(never, provider="salesforce")).items_to_retry == ()


def test_an_item_is_judged_by_ones_own_rules_too() -> None:
    rules = own_rules(
        pattern(patterns=[], provider_codes=["BUSY"], strategy="constant", category="transient_network")
    )
    body = {"items": [{"status": 400, "code": "BUSY"}, {"status": 400, "code": "WRONG"}]}
    verdict = judged(
        RawResponse(207, body={"items": [{**item, "statusCode": 400} for item in body["items"]]}), rules
    )
    assert [item.code for item in verdict.items_to_retry] == ["BUSY"]
