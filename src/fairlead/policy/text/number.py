"""Checks of numbers from callers. `True` is not a number, although Python calculates with it."""

from __future__ import annotations

import math


def number_of(value: object) -> float:
    """Return *value* if it is a number; else NaN, which fails every comparison.

    >>> number_of(2), number_of(True), number_of("2")
    (2, nan, nan)
    """
    return value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
