"""jsonb in and out of Python, fast on the way that is taken, never stuck on the one that is not (F7, E08).

The driver carries jsonb as text; stores turn it into values at their edge. Writing is strict: what jsonb
refuses (NaN, NUL, half a surrogate) or JSON cannot say raises ValueError before anything is sent. For values
of unknown origin (results, errors) there is `tamed`, which never fails. Reading never fails either: one
unreadable document must not hide the other rows of an answer.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter

from fairlead.policy.text.safe import safe_json

MAX_TAMED_BYTES = 64 * 1024

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_parse = TypeAdapter(Any).validate_json
_SHOWN = 200
_LONG_DIGITS = 309  # the digits of the largest float, which jsonb writes out
_LONG_NUMBER = re.compile(r"\d{309}")


def encoded(value: object) -> str:
    """Return *value* as JSON text; raise ValueError if jsonb cannot store it."""
    try:
        text = _ENCODER.encode(value)
        if not text.isascii():
            text.encode()  # half a surrogate pair
    except (TypeError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError(f"no JSON: {type(error).__name__}") from None
    if "\\u0000" in text and _holds_nul(value):
        raise ValueError("no jsonb: it holds a NUL character")
    return text


def tamed(value: object, max_bytes: int = MAX_TAMED_BYTES) -> str:
    """Return JSON text for any *value*: its exact JSON if jsonb can store it, else that of safe_json."""
    try:
        text = encoded(value)
    except ValueError:
        return safe_json(value, max_bytes)
    if len(text) > max_bytes // 4 and len(text.encode()) > max_bytes:
        return safe_json(value, max_bytes)
    return text


def decoded(text: str | None) -> Any:
    """Return the value of *text* (None for SQL's NULL), or ``{"unreadable": "<its beginning>"}``."""
    if text is None:
        return None
    # Only foreign SQL stores numbers that Python cannot represent, over 200 levels, or over 4,300 digits.
    if len(text) < _LONG_DIGITS or _LONG_NUMBER.search(text) is None:
        with suppress(ValueError):
            return _parse(text)
    try:
        return json.loads(text, parse_int=_integer, parse_float=_number)
    except (ValueError, RecursionError):
        return {"unreadable": text[:_SHOWN]}


def _holds_nul(value: object) -> bool:
    """Return whether a text in *value* has a NUL. The encoded text also matches a literal "\\u0000"."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_holds_nul(item) for item in value)


def _number(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits
