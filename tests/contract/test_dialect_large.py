"""Large responses: a failure far behind the part that is read is not taken for a success."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.policy.calls.classify.body import LARGEST_JUDGED
from fairlead.policy.calls.classify.verdict import Result, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import judged, netsuite_record, response_of, salesforce_graph

REQUEST, SERVER = Category.PERMANENT_REQUEST, Category.TRANSIENT_SERVER


def graphql(code: str | None = None, status: int = 200, **more: Any) -> RawResponse:
    error: dict[str, Any] = {"message": "no"}
    if code:
        error["extensions"] = {"code": code}
    return RawResponse(status, body={"errors": [error], **more})


def is_unreadable_part(verdict: Verdict) -> bool:
    """That some failed is told, and no list that would pass for all of them."""
    outcome = (verdict.result, verdict.failed_items, verdict.unclassified)
    return outcome == (Result.PARTIAL, (), True) and "cannot be read" in verdict.why


@pytest.mark.parametrize("size", [70_000, 300_000, LARGEST_JUDGED + 1])
def test_a_record_that_failed_far_behind_is_not_taken_for_done(size: int) -> None:
    done = netsuite_record(True).replace("</m:writeResponse>", f"<x>{'x' * 500}</x></m:writeResponse>")
    done *= size // 500
    for text in (
        done + netsuite_record(False, "A"),
        netsuite_record(False, "A") + done + netsuite_record(False, "B"),
    ):
        assert is_unreadable_part(judged(response_of(f"<e>{text}</e>"), "netsuite"))
    assert judged(response_of(f"<e>{done}</e>"), "netsuite").result is Result.OK
    verdict = judged(response_of(f"<e>{netsuite_record(False, 'A')}{done}</e>"), "netsuite")
    assert [item.index for item in verdict.failed_items] == [0], "all that failed was read"


def test_a_long_answer_of_which_nothing_was_done_is_a_failure() -> None:
    verdict = judged(response_of(f"<e>{netsuite_record(False, 'A') * 2000}</e>"), "netsuite")
    assert (verdict.result, verdict.category) == (Result.FAILED, REQUEST)


def test_an_operation_without_records_that_failed_is_a_failure() -> None:
    verdict = judged(
        RawResponse(200, text='<e><m:searchResult><c:status isSuccess="false"/></m:searchResult></e>')
    )
    assert (verdict.result, verdict.category) == (Result.FAILED, REQUEST)


def test_an_operation_whose_status_stands_far_behind_is_not_taken_for_done() -> None:
    assert is_unreadable_part(
        judged(response_of(f"<e>{'x' * 70_000}{netsuite_record(False)}</e>"), "netsuite")
    )


def test_of_a_large_answer_of_salesforce_failures_are_seen() -> None:
    fill = "x" * LARGEST_JUDGED
    rows = [{"success": True, "errors": [], "id": fill}, {"success": False, "errors": [], "id": None}]
    parts = [{"httpStatusCode": 200, "body": fill}, {"httpStatusCode": 404, "body": []}]
    results = {"hasErrors": True, "results": [{"statusCode": 200, "result": fill}, {"statusCode": 400}]}
    graphs = {"graphs": [salesforce_graph("a", True, (201, fill)), {"graphId": "b", "isSuccessful": False}]}
    for body in (rows, {"compositeResponse": parts}, results, graphs):
        for text in (json.dumps(body), json.dumps(body, separators=(",", ":"))):
            assert is_unreadable_part(judged(response_of(text), "salesforce"))
    results |= {"hasErrors": False, "results": [{"statusCode": 200, "result": fill}]}
    content = {"records": [{"success": False}, fill]}
    graphs["graphs"].pop()
    for body in (rows[:1], {"compositeResponse": parts[:1]}, results, content, graphs):
        assert judged(response_of(json.dumps(body)), "salesforce").result is Result.OK


def test_every_mutation_and_every_user_error_counts() -> None:
    error = {"field": ["a", "7"], "message": "no", "code": "TAKEN"}
    done: dict[str, Any] = {f"m{number}": {"userErrors": []} for number in range(100)}
    late = judged(response_of(json.dumps({"data": {**done, "last": {"userErrors": [error]}}})), "shopify")
    assert [item.index for item in late.failed_items] == [7]
    errors = [{"field": ["a", str(number)], "message": "no"} for number in range(250)]
    many = judged(response_of(json.dumps({"data": {"m": {"userErrors": errors}}})), "shopify")
    assert [item.index for item in many.failed_items] == list(range(250))
    too_many = judged(RawResponse(200, body={"data": {"m": {"userErrors": [error] * 10_001}}}), "shopify")
    assert is_unreadable_part(too_many)


def test_of_a_large_answer_of_shopify_user_errors_are_seen() -> None:
    error = {"field": ["a", "7"], "message": "no"}
    for name, errors in (("userErrors", [error]), ("mediaUserErrors", ["x"])):
        body = {"data": {"m": {"fill": "x" * LARGEST_JUDGED, name: errors}, "n": {"fill": "userErrors"}}}
        for text in (json.dumps(body), json.dumps(body, indent=2)):
            assert is_unreadable_part(judged(response_of(text), "shopify"))
        body["data"]["m"][name] = []
        assert judged(response_of(json.dumps(body)), "shopify").result is Result.OK


def test_data_behind_many_fields_without_any_is_data_all_the_same() -> None:
    data = {f"f{number}": None for number in range(100)} | {"last": 1}
    assert judged(graphql("X", data=data), "shopify").result is Result.PARTIAL


def test_a_secret_across_the_cut_of_a_message_is_not_shown_in_half() -> None:
    """Half of it has no longer the looks of one."""
    secret = "q0Vx3mT8yKp2Rz7LwN5sB1dF"
    for prefix_length in range(270, 301):
        verdict = judged(
            RawResponse(
                400, body={"message": "no " * (prefix_length // 3) + " " * (prefix_length % 3) + secret}
            )
        )
        assert "q0Vx" not in verdict.why
