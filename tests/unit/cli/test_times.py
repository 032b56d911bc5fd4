"""Lengths of time as people type them."""

from __future__ import annotations

import pytest

from fairlead.cli.kit.times import parse_duration
from fairlead.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("7d", 604_800),
        (" 2W ", 1_209_600),
    ],
)
def test_duration_is_parsed(text: str, length_s: float) -> None:
    assert parse_duration(text, "--for") == length_s


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-5m",
        "5 m",
        "m5",
        "5y",
        "1h-30m",
        "0",
        "0s",
        "367d",
        "99999999999",
        "1e3",
        "nan",
        "10m!",
        "٣m",
    ],
)
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--for"):
        parse_duration(text, "--for")
