"""Durations on the command line: ``90s``, ``10m``, ``1h30m``, ``7d``."""

from __future__ import annotations

import re

from fairlead.errors import InvalidInputError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhdw])")
_BARE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")


def parse_duration(text: str, option: str) -> float:
    """Return the seconds of *text*, above 0 and at most 366 days.

    >>> [parse_duration(text, "--for") for text in ("90", "10m", "1h30m", "1.5h", "7d")]
    [90.0, 600.0, 5400.0, 5400.0, 604800.0]

    Raises:
        InvalidInputError: It is no duration, or out of range. The message names *option*.
    """
    from fairlead.policy.jobs.job import LONGEST_DELAY_S

    bare = text.strip().lower()
    parts = _PART.findall(bare)
    if _BARE.fullmatch(bare):
        parts = [(bare, "")]
    elif "".join(number + unit for number, unit in parts) != bare or not parts:
        raise InvalidInputError(f"{option} {text!r} is no length of time", hint="write 90s, 10m, 1h30m or 7d")
    total_s = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if not 0 < total_s <= LONGEST_DELAY_S:
        raise InvalidInputError(f"{option} {text!r} is out of range", hint="above 0, at most 366 days")
    return total_s
