"""Parses the bytes of a response into a RawResponse: JSON if it is JSON, else text. Never raises. Spec: V7.

The charset is that of the Content-Type, else UTF-8. A body that Python cannot read as JSON, because of bad
text, endless brackets or numbers of thousands of digits, is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from fairlead.policy.limits.feedback.raw_response import RawResponse, stands_in
from fairlead.policy.text.charset import UTF_8, codec_of, declared_codec, decoded, strict_text_of, text_of

LONGEST_TEXT = 256 * 1024
"""Characters that are kept of a body that is not JSON."""
LARGEST_JUDGED = 1 << 20
"""Bytes up to which the JSON of a response is parsed to classify it."""
OUTER_BYTES = 128 << 10
"""Bytes at each end of a larger response that are read."""
_WIDE_MARKS = frozenset({b"\xff\xfe", b"\xfe\xff"})
_GRAPHQL = re.compile(r'\s*\{\s*"(?=(?:data|errors|extensions)")')
_MEMBER = re.compile(r'"(errors|extensions)"\s*:\s*')
_NEXT = re.compile(r"\s*([,}])\s*")
_MOST_MEMBERS = 3
_MOST_TRIES = 16  # data may have members of these names too, even many
_DECODER = json.JSONDecoder()
_BLANK = b"\xef\xbb\xbf \t\r\n\0\xff\xfe"  # with the marks of UTF-8 and UTF-16


def parse_response(status: int, headers: Mapping[str, str | Sequence[str]], body: bytes) -> RawResponse:
    """Return the response with its parsed body. *body* is without Content-Encoding.

    >>> parse_response(429, {"Retry-After": "2"}, b'{"error": "slow down"}').body
    {'error': 'slow down'}
    """
    response = RawResponse(status, headers)
    value, text = _read(body, declared_codec(response.headers))
    return replace(response, body=value, text=text)


class LazyResponse(RawResponse):
    """A response with JSON that is parsed on first access; most are classified by status and headers alone.

    *headers* have the form that the port Transport gives them.
    """

    __slots__ = ("_raw", "_value")

    def __init__(self, status: int, headers: Mapping[str, Sequence[str]], raw: bytes) -> None:
        put = object.__setattr__  # as a frozen dataclass does itself
        put(self, "status", status)
        put(self, "headers", headers)
        put(self, "_raw", raw)
        put(self, "_value", None)

    def __repr__(self) -> str:
        return f"LazyResponse({self.status}, {len(self._raw)} bytes)"

    @property
    def body(self) -> object:
        """The parsed JSON value; None where the body is no JSON."""
        return self._both()[0]

    @property
    def text(self) -> str | None:
        """The body where it is no JSON."""
        return self._both()[1]

    @property
    def is_markup(self) -> bool:
        """Whether it may be XML or HTML."""
        return self._raw[:64].lstrip(_BLANK).startswith(b"<")

    def may_contain(self, word: str) -> bool:
        """Return whether the raw body contains *word*."""
        return word.encode() in self._raw

    def holds(self, word: bytes, behind: re.Pattern[bytes]) -> bool:
        """Return whether the raw body contains *word* directly followed by *behind*. False if it is JSON."""
        return self.body is None and stands_in(self._raw, word, behind)

    def count(self, word: str) -> int:
        """Return how often the raw body contains *word*; 0 if it is JSON."""
        return 0 if self.body is not None else self._raw.count(word.encode())

    def excerpt(self) -> RawResponse:
        """Return what is classified: the response itself, or the beginning and outer members of a large one.

        Parsing JSON blocks the event loop for about 10 ms per several MiB.
        """
        return self if len(self._raw) <= LARGEST_JUDGED else _outline(self)

    def _both(self) -> tuple[object, str | None]:
        value = self._value
        if value is None:
            value = _read(self._raw, declared_codec(self.headers))
            object.__setattr__(self, "_value", value)
        return value

    _raw: bytes
    _value: tuple[object, str | None] | None


class Outline(RawResponse):
    """A large response of which little was parsed; the rest can be searched."""

    __slots__ = ("_response",)

    def __init__(self, response: LazyResponse, body: object, text: str | None) -> None:
        super().__init__(response.status, response.headers, body, text)
        object.__setattr__(self, "_response", response)

    def may_contain(self, word: str) -> bool:
        """Return whether the raw body contains *word*."""
        return self._response.may_contain(word)

    def holds(self, word: bytes, behind: re.Pattern[bytes]) -> bool:
        """Return whether the raw body contains *word* directly followed by *behind*."""
        return stands_in(self._response._raw, word, behind)

    def count(self, word: str) -> int:
        """Return how often the raw body contains *word*."""
        return self._response._raw.count(word.encode())

    _response: LazyResponse


def _outline(response: LazyResponse) -> Outline:
    """Return ``errors`` and ``extensions`` of a large GraphQL response; of any other its beginning, as text."""
    raw, declared = response._raw, declared_codec(response.headers)
    if response.is_markup or not (members := outer_members(raw, declared)):
        return Outline(response, None, _as_text(raw, declared))
    return Outline(response, members, None)


def outer_members(raw: bytes, declared: str | None = None) -> dict[str, object]:
    """Return ``errors`` and ``extensions`` of a large GraphQL response, which precede or follow its data.

    ``data`` is only marked as present. The result is empty for any other response.

    >>> outer_members(b'{"data":{"a":[1,2]},"extensions":{"cost":{"requestedQueryCost":7}}}')["extensions"]
    {'cost': {'requestedQueryCost': 7}}
    """
    beginning = text_of(raw[:OUTER_BYTES], declared)
    if not _GRAPHQL.match(beginning):
        return {}
    members = dict(_members_from(beginning, _GRAPHQL.match(beginning).end() - 1))  # type: ignore[union-attr]
    end = decoded(raw[-OUTER_BYTES:], codec_of(raw, declared)[0])
    for start in [*_MEMBER.finditer(end)][-_MOST_TRIES:]:
        last = dict(_members_from(end, start.start()))
        if "" in last:  # the object ends right after them
            members |= last
            break
    members.pop("", None)
    return {"data": {"": True}, **members}


def _members_from(text: str, at: int) -> Iterator[tuple[str, object]]:
    """Yield the consecutive members from *at* on; an empty name marks the end of the object."""
    for _ in range(_MOST_MEMBERS):
        match = _MEMBER.match(text, at)
        if match is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return
        yield match[1], value
        rest = _NEXT.match(text, at)
        if rest is None:
            return
        at = rest.end()
        if rest[1] == "}":
            if not text[at:].strip():
                yield "", None
            return


def _read(body: bytes, declared: str | None) -> tuple[object, str | None]:
    """Return (JSON value, None) or (None, text); (None, None) for an empty body."""
    beginning = body[:64].lstrip(_BLANK)
    if not beginning and not body.strip(_BLANK):
        return None, None
    if not beginning.startswith(b"<"):
        with suppress(ValueError, RecursionError):  # RecursionError: endless brackets
            if declared not in (None, UTF_8):
                return json.loads(strict_text_of(body, declared)), None
            is_utf_8 = 0 not in body[:4] and body[:2] not in _WIDE_MARKS
            # json passes each half of a surrogate pair in bytes to a handler: 0.5 s for 1 MiB of UTF-16.
            return json.loads(body if is_utf_8 else str(body, json.detect_encoding(body))), None
    return None, _as_text(body, declared)


def _as_text(body: bytes, declared: str | None) -> str:
    return text_of(body[: 4 * LONGEST_TEXT], declared)[:LONGEST_TEXT]
