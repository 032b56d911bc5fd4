"""A strict and bounded reader of JSON objects, for responses of token endpoints and for JWTs."""

from __future__ import annotations

import json
import math
import re
from typing import Any

DEEPEST = 32
"""The most levels of nesting that are read."""
_MAX_INT_DIGITS = 20
_MAX_FLOAT_DIGITS = 100

# A string that never ends is taken to the end of the text: starting again inside it would be quadratic.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


NO_FIELDS = "{}"
"""The JSON of an object without members."""

plain_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Return a value as strict JSON without blanks. ValueError for what only Python writes: NaN and infinity."""


class UnreadableBodyError(ValueError):
    """Why a body cannot be used; never repeats the body."""


def json_object(text: str) -> dict[str, Any]:
    """Return the members of the JSON object *text*. Raise UnreadableBodyError for anything else."""
    _check_depth(text)
    try:
        value = _STRICT.decode(text)
    except UnreadableBodyError:
        raise
    except ValueError:
        raise UnreadableBodyError("body is not JSON") from None
    if not isinstance(value, dict):
        raise UnreadableBodyError("JSON body is not an object")
    return value


def _check_depth(text: str) -> None:
    """Refuse deep nesting before json recurses into it. Brackets inside strings do not nest."""
    if text.count("{") + text.count("[") <= DEEPEST:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > DEEPEST:
            raise UnreadableBodyError(f"JSON nested deeper than {DEEPEST}")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object. Raise UnreadableBodyError for a repeated key, since parsers differ on it."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise UnreadableBodyError("duplicate key in JSON")
    return fields


def _bounded_int(digits: str) -> int | float:
    """Return the integer, or NaN for more digits than any field needs: int() raises from 4,300 digits on."""
    return int(digits) if len(digits) <= _MAX_INT_DIGITS else math.nan


def _bounded_float(digits: str) -> float:
    """Return the number, or NaN for a text that is too long."""
    return float(digits) if len(digits) <= _MAX_FLOAT_DIGITS else math.nan


_STRICT = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_constant=lambda _: math.nan,
    parse_float=_bounded_float,
    parse_int=_bounded_int,
)
