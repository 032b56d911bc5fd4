"""A response from a file, as `curl -i` writes it or as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.errors import InvalidInputError
from fairlead.policy.calls.classify.recording import LARGEST, read_recording
from fairlead.policy.limits.feedback.raw_response import RawResponse

WIRE = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nX-A: 1\r\nx-a: 2\r\n\r\n"


def test_as_it_came_over_the_wire() -> None:
    reply = read_recording(WIRE + b'{"error": "slow down"}')
    assert reply == RawResponse(429, {"retry-after": ["2"], "x-a": ["1", "2"]}, body={"error": "slow down"})


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/2 503 \n\ntext",
        b"HTTP/2 503\n\ntext",
        b"\n\nHTTP/1.0 503 Service Unavailable\r\n\r\ntext",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\n\r\ntext",
        b"HTTP/1.1 200 Established\r\n\r\nHTTP/1.1 302 Go\r\nlocation: /\r\n\r\nHTTP/2 503\r\n\r\ntext",
    ],
)
def test_the_last_of_several_answers_counts(raw: bytes) -> None:
    assert read_recording(raw) == RawResponse(503, text="text")


def test_header_ends_at_no_separator_of_unicode() -> None:
    reply = read_recording("HTTP/1.1 503 No\r\nX-A: one\x85two\r\nX-B: 3\r\n\r\n".encode("latin-1") + b"text")
    assert reply == RawResponse(503, {"x-a": ["one\x85two"], "x-b": ["3"]}, text="text")


def test_without_a_body() -> None:
    for end in (b"", b"\r\n", b"\r\n\r\n"):
        assert read_recording(b"HTTP/1.1 204 No Content" + end) == RawResponse(204)


@pytest.mark.parametrize(
    ("fields", "reply"),
    [
        ({"status": 429}, RawResponse(429)),
        ({"status": 429, "headers": {"Retry-After": "2"}}, RawResponse(429, {"retry-after": ["2"]})),
        ({"status": 429, "headers": {"A": ["1", "2"]}}, RawResponse(429, {"a": ["1", "2"]})),
        ({"status": 200, "body": {"ok": True}}, RawResponse(200, body={"ok": True})),
        ({"status": 200, "body": '{"ok": true}'}, RawResponse(200, body={"ok": True})),
        ({"status": 500, "body": "<Fault/>"}, RawResponse(500, text="<Fault/>")),
    ],
)
def test_as_json(fields: dict[str, Any], reply: RawResponse) -> None:
    assert read_recording(json.dumps(fields).encode()) == reply


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "status line"),
        (b"just a body", "status line"),
        (b"HTTP/1.1 999 Odd\r\n\r\n", "status line"),
        (b"HTTP/1.1 200 OK\r\nno header at all\r\n\r\n", "name: value"),
        (WIRE + b"\x1f\x8b\x08\x00", "compressed"),
        (b"{", "like JSON"),
        (b'{"a": ' * 100_000, "like JSON"),
        (b'{"status": "429"}', "from 100 to 599"),
        (b'{"status": true}', "from 100 to 599"),
        (b'{"status": 99}', "from 100 to 599"),
        (b'{"status": 200, "reason": "x"}', "members other"),
        (b'{"status": 200, "headers": []}', "headers"),
        (b'{"status": 200, "headers": {"a": 1}}', "headers"),
        (b"x" * (LARGEST + 1), "larger"),
    ],
)
def test_invalid_recording_is_refused_and_not_repeated(raw: bytes, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected) as refused:
        read_recording(raw)
    assert "hint" in str(refused.value)
    assert len(str(refused.value)) < 300
