"""Any error and any result, turned into something the store takes: this never raises.

PostgreSQL's text refuses NUL, its jsonb also NaN and lone surrogates, while Python's json produces all three
happily. If saving a failure can fail, the failing job loops for ever (E08). So texts and results of unknown
origin pass through here on their way to the database, bounded in size.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from fairlead.errors import FairleadError
from fairlead.policy.text.redact import redact

MAX_SAFE_BYTES = 4096

_T = TypeVar("_T")
_MARK = "…"
BEYOND = 4096  # characters after the cut that are looked at: a secret that it would halve is masked whole
_MAX_DEPTH = 32
_MAX_INT_BITS = 256
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# An error's text ends up on terminals too: of the control characters only tab and newline pass.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_INSTEAD = "\ufffd"


def safe_text(value: object, max_bytes: int = MAX_SAFE_BYTES, *, mask_known: bool = True) -> str:
    """Return a text for *value* that can be stored and shown: valid UTF-8, printable, bounded, secrets masked.

    An exception becomes ``TypeName: message``; fairlead's own become their message. The default bound is 4 KiB;
    *mask_known* is that of ``redact``.

    >>> safe_text(ValueError("bad value"))
    'ValueError: bad value'
    """
    text, name = _text_of(value, max_bytes + BEYOND), type(value).__name__
    if isinstance(value, BaseException) and not isinstance(value, FairleadError):
        text = f"{name}: {text}" if text.strip() else name
    # Masked before it is cut: half a secret is still half a secret (T8).
    masked = redact(_UNPRINTABLE.sub(_INSTEAD, text), mask_known=mask_known)
    if len(text) > max_bytes + BEYOND:
        masked = masked[:-BEYOND]
    return clipped(masked, max_bytes).strip() or name


def safe_end(text: str, max_bytes: int = MAX_SAFE_BYTES) -> str:
    """Return *text* as `safe_text` does, but of a long one its end: in a traceback the error stands last.

    >>> safe_end("first line, second line", 12)
    '…cond line'
    """
    looked = _UNPRINTABLE.sub(_INSTEAD, text[-max_bytes - BEYOND :])
    masked = redact(looked)
    if len(looked) < len(text):
        masked = masked[len(redact(looked[:BEYOND])) :]  # it may begin with half a secret
    raw = masked.encode()
    if len(raw) <= max_bytes:
        return masked.strip()
    return _MARK + raw[len(_MARK.encode()) - max_bytes :].decode("utf-8", "ignore").rstrip()


def unstorable(value: object) -> dict[str, str]:
    """Return what stands in JSON for a value that JSON cannot say, so that nobody takes it for a text.

    >>> unstorable(float("nan"))
    {'unstorable': 'nan'}
    """
    return {"unstorable": safe_text(value)}


def safe_json(value: object, max_bytes: int = MAX_SAFE_BYTES, *, marked: bool = False) -> str:
    """Return JSON text for *value* that jsonb accepts, at most *max_bytes* long (default 4 KiB).

    What JSON cannot express becomes text, or with *marked* ``{"unstorable": "<text>"}``; a value that is
    too large becomes ``{"truncated": true, "text": "<its beginning>"}``.

    >>> safe_json({"ratio": float("nan"), "who": {"acme"}})
    '{"ratio":"nan","who":"{\\'acme\\'}"}'
    """
    budget = _Budget(max_bytes, marked=marked)
    try:
        text = _dumps(_plain(value, budget, _MAX_DEPTH))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (any method of any object may raise anything, SystemExit too)
        return _dumps({"unstorable": type(error).__name__[: max_bytes // 2]})
    if budget.exceeded or len(text.encode()) > max_bytes:
        return _truncated(text, max_bytes)
    return text


def clipped(text: str, max_bytes: int) -> str:
    """Return *text* as valid UTF-8 of at most *max_bytes*, with "…" at the end if it was cut.

    >>> clipped("señor", 5)
    'se…'
    """
    raw = text[: max_bytes + 1].encode("utf-8", "replace")
    if len(raw) <= max_bytes:
        return raw.decode()
    return raw[: max(0, max_bytes - len(_MARK.encode()))].decode("utf-8", "ignore") + _MARK


class _Budget:
    """The number of characters left, so that a huge value is not read to its end."""

    __slots__ = ("exceeded", "marked", "remaining")

    def __init__(self, size: int, *, marked: bool) -> None:
        self.remaining = size
        self.marked = marked
        self.exceeded = False

    def spend(self, size: int) -> bool:
        self.remaining -= size
        self.exceeded = self.exceeded or self.remaining < 0
        return not self.exceeded

    def among(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield *items* until the budget is exceeded."""
        for item in items:
            if self.exceeded:
                return
            yield item


def _plain(value: object, budget: _Budget, depth: int) -> object:
    """Return *value* in plain JSON types. Numbers and texts are copied, so no subclass brings code of its own."""
    if depth == 0:
        budget.exceeded = True
    if not budget.spend(1):
        return _MARK
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        bits = value.bit_length()
        return int.__index__(value) if bits <= _MAX_INT_BITS else _instead(f"integer of {bits} bits", budget)
    if isinstance(value, float):
        number = float.__float__(value)
        return number if math.isfinite(number) else _instead(str(number), budget)
    if isinstance(value, dict):
        pairs = budget.among(value.items())
        return {_word(key, budget): _plain(item, budget, depth - 1) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_plain(item, budget, depth - 1) for item in budget.among(value)]
    return _word(value, budget) if isinstance(value, str) else _instead(_word(value, budget), budget)


def _instead(text: str, budget: _Budget) -> object:
    return {"unstorable": text} if budget.marked else text


def _word(value: object, budget: _Budget) -> str:
    text = str.__str__(value) if isinstance(value, str) else safe_text(value)
    text = _UNSTORABLE.sub(_INSTEAD, text[: max(0, budget.remaining) + 1])
    budget.spend(len(text))
    return text


def _truncated(text: str, max_bytes: int) -> str:
    room = max_bytes - len('{"truncated":true,"text":""}')
    while True:  # quotes double when they are quoted again, so the first try may still be too long
        shorter = _dumps({"truncated": True, "text": clipped(text, max(room, 0))})
        if len(shorter.encode()) <= max_bytes or room <= 0:
            return shorter
        room //= 2


def _text_of(value: object, max_bytes: int) -> str:
    """Return enough of the text of *value* to see that it is too long: an error may have megabytes."""
    try:
        return str.__getitem__(str(value), slice(max_bytes + 1))  # of a subclass, too, this gives a plain str
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (an error without a text is stored, too)
        return f"<its text failed with {type(error).__name__}>"


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
