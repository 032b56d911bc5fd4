"""Of a batch only what failed is sent again (C9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.app.client.batch import BatchResult, retry_failed
from fairlead.app.client.response import Response
from fairlead.engine.calls.request import CallResult
from fairlead.engine.ports import HttpResponse
from fairlead.errors import CallFailedError, DependencyUnavailableError, LimitExceededError, SlotLostError
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.profile_load import load_profiles

PROFILES = load_profiles()


class Vendor:
    """Answers in their order, judged as a provider's; what was sent, and which waits were asked for."""

    def __init__(self, provider: str, *answers: RawResponse | Exception) -> None:
        self.rules = rules_of(PROFILES[provider])
        self.answers = list(answers)
        self.sent: list[list[Any]] = []
        self.waits: list[int] = []
        self.most = 3

    async def send(self, items: list[Any]) -> Response:
        self.sent.append(items)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        verdict = classify(self.rules, answer, now_epoch_s=None)
        result = CallResult(HttpResponse(answer.status, {}, b"", 0.0), answer, verdict, 1, 0.0)
        return Response(result, tenant="acme", provider="shop")

    async def may_go_on(self, verdict: Verdict, attempt: int) -> bool:
        self.waits.append(attempt)
        return attempt < self.most

    async def batch(self, items: Sequence[Any]) -> BatchResult[Any]:
        return await retry_failed(items, self.send, str, self.may_go_on)


def statuses(*codes: int) -> RawResponse:
    return RawResponse(207, body={"items": [{"status": status} for status in codes]})


async def test_207_with_1_of_3_failed_sends_one_item_again() -> None:
    vendor = Vendor("generic_oauth2", statuses(200, 503, 200), statuses(200))
    result = await vendor.batch(["a", "b", "c"])
    assert vendor.sent == [["a", "b", "c"], ["b"]]
    assert (result.complete, result.failed, len(result.responses)) == (True, [], 2)


async def test_permanently_failed_item_is_not_sent_again() -> None:
    vendor = Vendor("generic_oauth2", statuses(422, 503, 429), statuses(200, 422))
    result = await vendor.batch(["a", "b", "c"])
    assert vendor.sent == [["a", "b", "c"], ["b", "c"]]
    assert [(failure.item, failure.failure.code) for failure in result.failed] == [("a", "422"), ("c", "422")]
    assert not result.complete


async def test_the_tries_have_an_end() -> None:
    vendor = Vendor("generic_oauth2", *([statuses(503)] * 9))
    vendor.most = 2
    result = await vendor.batch(["a"])
    assert (len(vendor.sent), vendor.waits) == (3, [0, 1, 2])
    assert [failure.item for failure in result.failed] == ["a"]


async def test_salesforce_composites_tell_by_place() -> None:
    busy = [{"statusCode": "UNABLE_TO_LOCK_ROW", "message": "busy"}]
    first = [{"success": True}, {"success": False, "errors": busy}]
    vendor = Vendor("salesforce", RawResponse(200, body=first), RawResponse(200, body=[{"success": True}]))
    assert (await vendor.batch(["a", "b"])).complete
    assert vendor.sent == [["a", "b"], ["b"]]


async def test_a_name_of_several_items_tells_none_of_them() -> None:
    failed = {"category": "RATE_LIMITS", "context": {"ids": ["7"]}}
    vendor = Vendor("hubspot", RawResponse(207, body={"results": [{"id": "7"}], "errors": [failed]}))
    result = await vendor.batch([7, 7])
    assert vendor.sent == [[7, 7]]
    assert (result.complete, result.failed, [failure.ref for failure in result.unmatched_failures]) == (
        False,
        [],
        ["7"],
    )


async def test_hubspot_tells_by_name() -> None:
    errors = [
        {"category": "RATE_LIMITS", "context": {"ids": ["7"]}},
        {"category": "X", "context": {"ids": ["9"]}},
    ]
    vendor = Vendor("hubspot", RawResponse(207, body={"results": [], "errors": errors}))
    result = await vendor.batch([7, 8])
    assert [failure.item for failure in result.failed] == [7]
    assert [failure.ref for failure in result.unmatched_failures] == ["9"], "it is none that was sent"


async def test_user_errors_of_shopify_tell_by_the_place_in_their_path() -> None:
    errors = [
        {"field": ["metafields", "1", "value"], "message": "is too long", "code": "TOO_LONG"},
        {"field": ["metafields", "2"], "message": "busy", "code": "THROTTLED"},
    ]
    first = {"data": {"metafieldsSet": {"metafields": [], "userErrors": errors}}}
    done = {"data": {"metafieldsSet": {"metafields": [{}], "userErrors": []}}}
    vendor = Vendor("shopify", RawResponse(200, body=first), RawResponse(200, body=done))
    result = await vendor.batch(["a", "b", "c"])
    assert vendor.sent == [["a", "b", "c"], ["c"]]
    assert [(failure.item, failure.failure.code) for failure in result.failed] == [("b", "TOO_LONG")]


async def test_a_first_call_that_fails_raises_and_a_later_one_does_not_undo_what_was_done() -> None:
    closed = LimitExceededError("no room", retry_after_s=1.0)
    for error in (
        CallFailedError("gone"),
        closed,
        SlotLostError("lost"),
        DependencyUnavailableError("no PostgreSQL"),
    ):
        with pytest.raises(type(error)):
            await Vendor("generic_oauth2", error).batch(["a"])
        vendor = Vendor("generic_oauth2", statuses(200, 503), error)
        result = await vendor.batch(["a", "b"])
        assert (result.error, [failure.item for failure in result.failed]) == (error, ["b"])


async def test_a_207_that_cannot_be_read_is_not_complete() -> None:
    result = await Vendor("generic_oauth2", RawResponse(207, body={"what": 1})).batch(["a"])
    assert (result.complete, result.failed, len(result.responses)) == (False, [], 1)
