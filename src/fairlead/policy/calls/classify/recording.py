"""A recorded response from a file: the output of ``curl -i``, or JSON with status, headers and body."""

from __future__ import annotations

import json
import re

from fairlead.errors import InvalidInputError
from fairlead.policy.calls.classify.body import parse_response
from fairlead.policy.limits.feedback.raw_response import RawResponse

LARGEST = 10 * 1024 * 1024
"""Bytes of a recorded response."""

_HEAD = re.compile(
    rb"HTTP/[0-9.]{1,3} ([1-5][0-9]{2})(?: [^\r\n]*)?(?:\r?\n|\Z)"  # the status line
    rb"((?:[^\r\n]+\r?\n)*)(?:\r?\n|\Z)"  # headers, and the empty line after them
)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*)")
_HINT = 'record it with `curl -i`, or write {"status": 429, "headers": {}, "body": {}}'


def read_recording(raw: bytes) -> RawResponse:
    """Parse a recorded response.

    Raises:
        InvalidInputError: *raw* is no recorded response. The message repeats nothing of it.
    """
    if len(raw) > LARGEST:
        raise InvalidInputError(
            f"the recorded response is larger than {LARGEST} bytes", hint="keep its beginning"
        )
    if raw.lstrip().startswith(b"{"):
        return _from_json(raw)
    return _from_wire(raw.lstrip())


def _from_wire(raw: bytes) -> RawResponse:
    """Parse the last response in *raw*; those of a proxy, a redirect or 100 Continue may precede it."""
    head = None
    while (match := _HEAD.match(raw)) is not None:
        head, raw = match, raw[match.end() :]
    if head is None:
        raise InvalidInputError("the file begins with no status line of HTTP", hint=_HINT)
    headers: dict[str, list[str]] = {}
    for line in head[2].decode("latin-1").replace("\r\n", "\n").split("\n")[:-1]:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise InvalidInputError("a header of the recorded response is no `name: value`", hint=_HINT)
        headers.setdefault(header[1].lower(), []).append(header[2].strip(" \t"))
    if raw.startswith(b"\x1f\x8b"):
        raise InvalidInputError(
            "the recorded body is compressed", hint="record it with `curl -i --compressed`"
        )
    return parse_response(int(head[1]), headers, raw)


def _from_json(raw: bytes) -> RawResponse:
    try:
        recording = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidInputError("the file begins like JSON and is none", hint=_HINT) from None
    unknown = sorted(set(recording) - {"status", "headers", "body"})
    if unknown:
        raise InvalidInputError("the file has members other than status, headers and body", hint=_HINT)
    status, headers, body = recording.get("status"), recording.get("headers", {}), recording.get("body")
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        raise InvalidInputError("status is no number from 100 to 599", hint=_HINT)
    if not isinstance(headers, dict) or not all(_is_header(value) for value in headers.values()):
        raise InvalidInputError("headers is no object of texts, or of lists of texts", hint=_HINT)
    if isinstance(body, str):
        marked = f"\ufeff{body}"  # the recording is text already, whatever its charset header says
        return parse_response(status, headers, marked.encode("utf-8", "surrogatepass"))
    return RawResponse(status, headers, body=body)


def _is_header(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )
