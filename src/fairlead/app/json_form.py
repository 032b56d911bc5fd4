"""Conversion of a program's values to JSON values.

pydantic silently turns a NaN inside a model that is part of a value of type Any into null. Here it stays NaN,
so that the code that stores it can refuse or mark it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

Dump = Callable[[Literal["json", "python"]], Any]
"""Dumps one value in a mode of pydantic."""


def json_form(dump: Dump) -> Any:
    """Return the JSON value of *dump*, in which numbers that are not finite stay as they are."""
    value = dump("json")
    return _with_numbers(value, dump("python")) if _holds_null(value) else value


def _holds_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_null, value.values()))
    if isinstance(value, list):
        return any(map(_holds_null, value))
    return value is None


def _with_numbers(converted: Any, plain: Any) -> Any:
    """Return *converted* with each null replaced for which *plain* has a number that is not finite."""
    if converted is None and isinstance(plain, float) and not math.isfinite(plain):
        return plain
    if isinstance(converted, dict) and isinstance(plain, dict) and len(converted) == len(plain):
        pairs = zip(converted.items(), plain.values(), strict=True)
        return {key: _with_numbers(value, at) for (key, value), at in pairs}
    if isinstance(converted, list) and isinstance(plain, list | tuple) and len(converted) == len(plain):
        return [_with_numbers(value, at) for value, at in zip(converted, plain, strict=True)]
    return converted
