"""Dates in HTTP headers, read strictly: the three forms of RFC 9110 §5.6.7 and nothing else.

``email.utils`` takes far more ("-0000" comes back without a zone, "+9999" as an offset), and its
leniency ends in a TypeError deep inside a subtraction. Weekday names are required but not checked
against the date: servers that get them wrong still mean the date.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_LONGEST = 40  # the longest legal form has 33 characters
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_TIME = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_FORMS = tuple(
    re.compile(form)
    for form in (
        f"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        f"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        f"{_DAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}(?::[0-9]{2}){2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def parse_http_date(text: str) -> float | None:
    """Return the seconds since the epoch, or None if *text* is none of the three forms.

    The two-digit years of the RFC 850 form are read as POSIX does: 69–99 are 1969–1999, 00–68 are 2000–2068.

    >>> parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT")
    784111777.0
    >>> parse_http_date("Sun, 06 Nov 1994 08:49:37 -0000") is None
    True
    """
    text = text.strip(" \t")
    if len(text) > _LONGEST:
        return None
    for form in _FORMS:
        if match := form.fullmatch(text):
            return _epoch_s(match)
    return None


def parse_rfc_3339(text: str) -> float | None:
    """Return the Unix time of *text* in RFC 3339, or None if it has another form."""
    if not _RFC_3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):  # 30 February, year 0
        return None


def _epoch_s(match: re.Match[str]) -> float | None:
    year = int(match["year"])
    if len(match["year"]) == 2:
        year += 1900 if year >= 69 else 2000
    second = int(match["second"])
    leap_s = 1 if second == 60 else 0  # a leap second is legal here, and unknown to datetime
    month = _MONTHS.index(match["month"]) + 1
    day, hour, minute = (int(match[name]) for name in ("day", "hour", "minute"))
    try:
        moment = datetime(year, month, day, hour, minute, second - leap_s, tzinfo=UTC)
        moment += timedelta(seconds=leap_s)
    except (ValueError, OverflowError):  # 30 Feb, 25:00:00, year 0, the last second of 9999 and one more
        return None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)
