"""What is read of an answer to judge it, and what only when somebody asks (P11, V7)."""

from __future__ import annotations

import json
import re
import tracemalloc
from typing import Any

import pytest

from fairlead.policy.calls.classify import body as body_module
from fairlead.policy.calls.classify.body import LARGEST_JUDGED, LazyResponse, outer_members, parse_response
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.calls.classify.verdict import Result, Verdict
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import MOST_PLACES, stands_in
from fairlead.policy.providers.profile_load import load_profiles

PROFILES = load_profiles()
LARGE = [{"id": number, "note": "x" * 200, "errors": [], "userErrors": []} for number in range(8000)]
COST = {
    "cost": {"requestedQueryCost": 7, "actualQueryCost": 5, "throttleStatus": {"currentlyAvailable": 90.0}}
}
FAILED = [{"message": "no", "extensions": {"code": "INTERNAL_SERVER_ERROR"}}]


def judged(raw: bytes, provider: str, status: int = 200) -> Verdict:
    reply = LazyResponse(status, {}, raw).excerpt()
    observations = parse_limits(PROFILES[provider].limits.dialect, reply, now_epoch_s=None)
    return classify(rules_of(PROFILES[provider]), reply, observations, now_epoch_s=None)


@pytest.mark.parametrize("provider", list(PROFILES))
def test_the_json_of_a_success_is_read_when_somebody_asks(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    original = body_module._read

    def reads(raw: bytes, declared: str | None) -> Any:
        read.append(raw)
        return original(raw, declared)

    monkeypatch.setattr(body_module, "_read", reads)
    reply = LazyResponse(200, {}, b'{"items": [1, 2]}')
    observations = parse_limits(PROFILES[provider].limits.dialect, reply.excerpt(), now_epoch_s=None)
    assert (
        classify(rules_of(PROFILES[provider]), reply.excerpt(), observations, now_epoch_s=None).result
        is Result.OK
    )
    assert read == []
    assert (reply.body, reply.body, reply.text) == ({"items": [1, 2]}, {"items": [1, 2]}, None)
    assert len(read) == 1, "it is read once"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"data": {"a": 1}, "extensions": {"cost": {"requestedQueryCost": 7}}}',
        b'{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}',
        b'{"data": {"m": {"userErrors": [{"field": ["a", "1"], "message": "no", "code": "TAKEN"}]}}}',
        b"<s:Envelope><s:Fault><faultcode>s:Server</faultcode></s:Fault></s:Envelope>",
        b'[{"success": false, "errors": [{"statusCode": "UNABLE_TO_LOCK_ROW"}]}]',
        b'{"accountConcurrencyLimit": 15, "integrationLimitType": "accountLimit"}',
        b"\xef\xbb\xbf{}",
        b"",
        b"[" * 2000,
    ],
)
@pytest.mark.parametrize("provider", list(PROFILES))
def test_nothing_is_missed_by_reading_late(raw: bytes, provider: str) -> None:
    dialect = PROFILES[provider].limits.dialect
    for status in (200, 207, 400, 429, 500):
        late, eager = LazyResponse(status, {}, raw), parse_response(status, {}, raw)
        assert parse_limits(dialect, late, now_epoch_s=None) == parse_limits(dialect, eager, now_epoch_s=None)
        rules = rules_of(PROFILES[provider])
        assert classify(rules, late, now_epoch_s=None) == classify(rules, eager, now_epoch_s=None)
        assert (late.body, late.text) == (eager.body, eager.text)


def test_of_a_large_answer_of_graphql_the_ends_are_read() -> None:
    for original, expected in (
        ({}, {"errors": FAILED, "extensions": COST}),
        ({"errors": FAILED}, {"extensions": COST}),
    ):
        raw = json.dumps({**original, "data": {"orders": LARGE}, **expected}).encode()
        assert len(raw) > LARGEST_JUDGED
        members = outer_members(raw)
        assert (members["errors"], members["extensions"]) == (FAILED, COST)
        assert judged(raw, "shopify").result is Result.PARTIAL
        reply = LazyResponse(200, {}, raw)
        points = parse_limits("shopify", reply.excerpt(), now_epoch_s=None)[0]
        assert (points.remaining, points.actual) == (90.0, 5.0)
        assert len(reply.body["data"]["orders"]) == len(LARGE)  # type: ignore[index]
    plain = json.dumps({"data": {"orders": LARGE}}).encode()
    assert judged(plain, "shopify").result is Result.OK
    assert outer_members(plain) == {"data": {"": True}}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"data":' + b'{"errors":' * 200_000,
        b'{"errors":' + b"[" * 2_000_000,
        b'{"data":[' + b'"errors":"errors":' * 100_000,
        b'{"data":[' + b'"errors":1,' * 200_000,
        b'{"data":[' + b" " * (2 << 20),
        b'{"data": "' + b"x" * (16 << 20) + b'"}',
        json.dumps({"items": LARGE * 6}).encode(),
    ],
    ids=["nested", "brackets", "many", "chain", "blank", "long", "plain"],
)
def test_a_large_answer_stops_nobody(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """P11: little of it is read, and seldom, whatever it holds; counted, as time depends on the machine."""
    decoded: list[int] = []

    class Counted:
        def raw_decode(self, text: str, at: int) -> tuple[object, int]:
            decoded.append(len(text))
            return json.JSONDecoder().raw_decode(text, at)

    def read_all(_raw: bytes) -> None:
        pytest.fail("it was read as a whole")

    monkeypatch.setattr(body_module, "_DECODER", Counted())
    monkeypatch.setattr(body_module, "_read", read_all)
    for status in (200, 400, 500):
        decoded.clear()
        judged(raw, "shopify", status)
        assert len(decoded) <= body_module._MOST_MEMBERS * (body_module._MOST_TRIES + 1)
        assert max(decoded, default=0) <= body_module.OUTER_BYTES


# ---- what stands in the rest of a large answer


class Counting:
    """An expression that is never met, and counts how often it was looked for."""

    looked = 0

    def match(self, _raw: bytes, _at: int) -> None:
        self.looked += 1


def test_a_word_is_found_with_what_stands_behind_it() -> None:
    false = re.compile(rb"\s*+:\s*+false\b")
    assert stands_in(b'{"success" : true, "success"\n:\tfalse}', b'"success"', false)
    assert not stands_in(b'{"success": true, "x": false, "success": falsely}', b'"success"', false)
    assert not stands_in(b"", b'"success"', false)


def test_text_with_too_many_places_to_check_counts_as_present() -> None:
    for times in (MOST_PLACES - 1, MOST_PLACES, MOST_PLACES + 1, 10 * MOST_PLACES):
        counting = Counting()
        assert stands_in(b'"success"' * times, b'"success"', counting) == (times > MOST_PLACES)  # type: ignore[arg-type]
        assert counting.looked == min(times, MOST_PLACES)


ROW = b'{"success":true,"created":true,"id":"0030000000000%05dAAA","errors":[],"fill":"' + b"x" * 40 + b'"},'


def test_the_largest_batch_that_was_done_is_done() -> None:
    rows = b"".join(ROW % number for number in range(10_000))[:-1]
    assert len(rows) > LARGEST_JUDGED
    assert judged(b"[" + rows + b"]", "salesforce").result is Result.OK
    assert judged(b"[" + rows.replace(b"true", b"false", 1) + b"]", "salesforce").result is Result.PARTIAL


@pytest.mark.parametrize(
    ("provider", "head", "part"),
    [
        ("salesforce", b"[", b'"success":false,'),
        ("salesforce", b"[", b'"success":true,'),
        ("salesforce", b'{"compositeResponse":', b'"httpStatusCode":500,'),
        ("salesforce", b'{"compositeResponse":', b'"httpStatusCode":200,'),
        ("shopify", b'{"data":', b'"userErrors":[1],'),
        ("shopify", b'{"data":', b'"userErrors":[],'),
        ("netsuite", b"<e>", b' isSuccess="false"'),
    ],
)
def test_large_body_with_many_matches_needs_little_memory(provider: str, head: bytes, part: bytes) -> None:
    """P11: to know that it is there takes none of the memory that a list of all of it would, 50 MiB here."""
    reply, rules = (
        LazyResponse(200, {}, head + part * ((15 << 20) // len(part))),
        rules_of(PROFILES[provider]),
    )
    tracemalloc.start()
    try:
        assert classify(rules, reply.excerpt(), now_epoch_s=None).result is Result.PARTIAL
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
