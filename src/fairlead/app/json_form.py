"""Values of a program as the JSON they stand for.

pydantic turns a NaN inside a model that stands in a value of type Any into null without a word. Here it stays
NaN, so that whatever stores it can refuse it or mark it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

Dump = Callable[[Literal["json", "python"]], Any]
"""Dumps one value in a mode of pydantic."""


def json_form(dump: Dump) -> Any:
    """Return what *dump* gives as JSON, with numbers that are not finite left as they are."""
    told = dump("json")
    return _with_numbers(told, dump("python")) if _holds_null(told) else told


def _holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_null, value.values()))
    if isinstance(value, list):
        return any(map(_holds_null, value))
    return value is None


def _with_numbers(told: Any, plain: Any) -> Any:
    """Return *told* with each null replaced for which *plain* has a number that is not finite."""
    if told is None and isinstance(plain, float) and not math.isfinite(plain):
        return plain
    if isinstance(told, dict) and isinstance(plain, dict) and len(told) == len(plain):
        pairs = zip(told.items(), plain.values(), strict=True)
        return {key: _with_numbers(value, at) for (key, value), at in pairs}
    if isinstance(told, list) and isinstance(plain, list | tuple) and len(told) == len(plain):
        return [_with_numbers(value, at) for value, at in zip(told, plain, strict=True)]
    return told
