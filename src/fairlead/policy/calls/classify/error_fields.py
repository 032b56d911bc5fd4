"""The parts of an answer that say what went wrong: codes and messages, wherever vendors put them.

One list of places serves all vendors: a place that one does not use is empty there. Codes are compared with
lists and never acted on by themselves, so a place too many does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.policy.calls.classify.verdict import FailedItem
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.feedback.readers import elements, entries, member, word
from fairlead.policy.text.text_match import LONGEST_TEXT

_MOST = 64
_PAGE = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_LONGEST_CODE = 200
_CODES = (
    ("error",),
    ("code",),
    ("error_code",),
    ("errorCode",),
    ("name",),
    ("type",),
    ("status",),
    ("category",),
    ("errorType",),
    ("policyName",),
    ("message",),
    ("error", "code"),
    ("error", "type"),
    ("error", "status"),
    ("Fault", "type"),
    ("fault", "type"),
)
_MESSAGES = (
    ("message",),
    ("Message",),
    ("detail",),
    ("Detail",),
    ("title",),
    ("error",),
    ("error_description",),
    ("error_message",),
    ("errors",),
    ("error", "message"),
)
_LISTS = (
    ("errors",),
    ("error", "errors"),
    ("error", "details"),
    ("o:errorDetails",),
    ("Fault", "Error"),
    ("fault", "error"),
    (),
)
_ENTRY_CODES = (
    ("code",),
    ("errorCode",),
    ("statusCode",),
    ("reason",),
    ("status",),
    ("o:errorCode",),
    ("extensions", "code"),
)
_ENTRY_MESSAGES = (("message",), ("Message",), ("detail",), ("Detail",))


@dataclass(frozen=True, slots=True)
class BodyError:
    """The failure that a body states by a protocol of its own, independent of the status.

    Attributes:
        partial: Whether a part was done.
        category: The category of the protocol's codes. None: they do not determine one.
        items: The failed items of a batch.
        readable: False: it is a batch, and its failed items cannot be identified.
        wordy: Whether its messages may say more than its codes. False: they are about the request.
        executed: Whether the provider ran the request, at least in part, whatever the error says.
    """

    protocol: str
    codes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    category: Category | None = None
    partial: bool = False
    items: tuple[FailedItem, ...] = ()
    readable: bool = True
    wordy: bool = True
    executed: bool = False


def find_codes(response: RawResponse) -> tuple[str, ...]:
    """Return every error code in the body once, in the order of the fields that are searched."""
    codes: dict[str, None] = {}
    for code in _codes(response):
        if code and len(codes) < _MOST:
            codes[code] = None
    return tuple(codes)


def find_messages(response: RawResponse) -> tuple[str, ...]:
    """Return the messages in the body, each of bounded length; a body that is not JSON is one message."""
    texts = [text[:LONGEST_TEXT] for text in _messages(response) if text.strip()]
    return tuple(dict.fromkeys(texts[:_MOST]))


def code(value: object) -> str:
    """Return *value* as an error code: a short text, or a number as text; else an empty one.

    >>> code("THROTTLED"), code(3200), code(True), code(None)
    ('THROTTLED', '3200', '', '')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if 0 <= value < 10**9 else ""
    text = word(value).strip()
    return text if len(text) <= _LONGEST_CODE else ""


def at(value: object, path: tuple[str, ...]) -> Iterator[object]:
    """Yield the values at *path* in nested JSON; ``*`` stands for every entry, a number for one of a list."""
    if not path:
        yield value
        return
    key, rest = path[0], path[1:]
    if key == "*":
        inner = tuple(value.values())[:_MOST] if isinstance(value, dict) else entries(value)
        for entry in inner:
            yield from at(entry, rest)
    elif isinstance(value, dict):
        if key in value:
            yield from at(value[key], rest)
    elif key.isascii() and key.isdigit():
        selected = entries(value)[int(key) : int(key) + 1] if len(key) <= 3 else ()
        for entry in selected:
            yield from at(entry, rest)


def _codes(response: RawResponse) -> Iterator[str]:
    body = response.body
    for path in _CODES:
        yield code(member(body, *path))
    for entry in _entries(body):
        for path in _ENTRY_CODES:
            yield code(member(entry, *path))
    if response.text is not None and len(response.text) <= _LONGEST_CODE:
        yield code(response.text)


def _messages(response: RawResponse) -> Iterator[str]:
    body = response.body
    for path in _MESSAGES:
        value = member(body, *path)
        yield value if isinstance(value, str) else ""
    for entry in _entries(body):
        for path in _ENTRY_MESSAGES:
            value = entry if isinstance(entry, str) else member(entry, *path)
            yield value if isinstance(value, str) else ""
    if isinstance(body, str):
        yield body
    yield from _field_errors(member(body, "errors"))
    yield from _plain(response.text or "")


def _plain(text: str) -> Iterator[str]:
    """Yield the text itself; of a web page only the headings, since its full text may match any pattern."""
    beginning = text[:LONGEST_TEXT]
    if _PAGE.match(beginning):
        yield from (words for _, words in elements(text, "title", "h1", "TITLE", "H1"))
    else:
        yield beginning


def _entries(body: object) -> Iterator[object]:
    for path in _LISTS:
        yield from entries(member(body, *path))


def _field_errors(errors: object) -> Iterator[str]:
    """Yield the messages of ``{"errors": {"title": ["is too long"]}}``, the form of Rails."""
    for messages in list(errors.values())[:_MOST] if isinstance(errors, dict) else ():
        for text in (messages, *entries(messages)):
            yield text if isinstance(text, str) else ""
