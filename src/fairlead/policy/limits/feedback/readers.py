"""Strict readers for what strangers sent: a value that cannot be read is as good as absent.

JSON gives NaN, infinities, booleans that count as numbers, and integers of any length; a key may hold
anything. No reader raises, follows more than a fixed path, or looks at more than a bounded part. XML is
searched, not parsed: a fault needs two texts, and a parser brings entities that grow without bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairlead.policy.limits.feedback.raw_response import RawResponse

MOST = 1e9
"""Larger numbers are taken for this one: the most units that a bucket can hold."""
LONGEST_TEXT = 64 * 1024
"""Characters of a text that are looked at."""

_NONSENSE = 1e15  # as many digits as policy.ratelimit_header reads; beyond it no counter is meant
_MOST_ENTRIES = 100
_LONGEST_WORD = 500
_LONGEST_HEADER = 1024
_COUNT = re.compile(r"[0-9]{1,15}")
_SHARE = re.compile(r"([0-9]{1,15})/([0-9]{1,15})")
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
_ELEMENT = re.compile(rf"<(?:{_NAME}:)?({_NAME})(?:[ \t\r\n][^<>]{{0,500}})?>([^<>]{{0,1000}})</")


def number(value: object, at_least: float = 0.0) -> float | None:
    """Return *value* if JSON wrote it as a number not below *at_least*; what is above 1e9 counts as 1e9.

    >>> number(498), number("498"), number(True), number(float("nan")), number(-1)
    (498.0, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared before it is converted: an integer may be too long for a float.
    return min(float(value), MOST) if at_least <= value < _NONSENSE else None


def member(value: object, *path: str) -> object:
    """Return the value at *path* in nested JSON objects; None if a part is missing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def entries(value: object) -> tuple[object, ...]:
    """Return the first entries of a JSON array; none if it is no array."""
    return tuple(value[:_MOST_ENTRIES]) if isinstance(value, list) else ()


def word(value: object) -> str:
    """Return *value* if it is a text of reasonable length, else an empty one, which is no code."""
    return value if isinstance(value, str) and len(value) <= _LONGEST_WORD else ""


def header(reply: RawResponse, name: str) -> str | None:
    """Return the single value of a header; None if absent, too long, or repeated."""
    values = reply.headers.get(name, ())
    if len(values) != 1 or len(values[0]) > _LONGEST_HEADER:
        return None
    return values[0].strip(" \t")


def count(text: str | None) -> float | None:
    """Return the whole number in a header.

    >>> count("190"), count("1e3"), count("-1"), count(None)
    (190.0, None, None, None)
    """
    return number(int(text)) if text is not None and _COUNT.fullmatch(text) else None


def share(text: str | None) -> tuple[float, float] | None:
    """Return (left, capacity) from "used/capacity". More used than there is leaves 0.

    >>> share("32/40"), share("41/40"), share("0/0")
    ((8.0, 40.0), (0.0, 40.0), None)
    """
    match = _SHARE.fullmatch(text) if text is not None else None
    if match is None:
        return None
    used, capacity = count(match[1]), count(match[2])
    if used is None or not capacity:
        return None
    return max(0.0, capacity - used), capacity


def elements(text: str | None, *names: str) -> Iterator[tuple[str, str]]:
    """Yield (local name, content) of the XML elements of these *names* that hold nothing but text.

    >>> list(elements("<f:code>WS_REQUEST_BLOCKED</f:code>", "code"))
    [('code', 'WS_REQUEST_BLOCKED')]
    """
    for match in _ELEMENT.finditer((text or "")[:LONGEST_TEXT]):
        if match[1] in names:
            yield match[1], match[2].strip()
