"""The wait that a server requests, read by one strict parser, bounded, and never undercut. Spec: R15.

Retry-After is a number of seconds or a date. Python would accept "1_000", Arabic digits, "nan" or "1e400" as
a number. Here a number is one to ten ASCII digits with up to three decimals (Shopify sends decimals), rounded
up. A date is measured against the response's Date header, because the same clock wrote both. Some vendors
send an RFC 3339 date, which is accepted; any other value is ignored.

Two values, as two header lines or as "120, 5", are not a legal Retry-After, but mean that two layers each
asked for a wait. The longest readable one counts, because it satisfies both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from fairlead.policy.failures.backoff import checked_draw
from fairlead.policy.failures.http_date import parse_http_date, parse_rfc_3339
from fairlead.policy.failures.ratelimit_header import parse_ratelimit, ratelimit_wait_s

__all__ = [
    "DAILY_PARK_CAP_S",
    "HINT_CAP_S",
    "clamp_hint",
    "hinted_delay",
    "parse_ratelimit",
    "parse_retry_after",
    "ratelimit_wait_s",
    "server_hint",
]

HINT_CAP_S = 15 * 60.0
"""The longest wait a hint may ask for."""
DAILY_PARK_CAP_S = 24 * 3600.0
"""The longest park until a known daily limit is reset."""

_SECONDS = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,3}))?")
_MILLISECONDS = re.compile(r"([0-9]{1,13})(?:\.[0-9]{1,3})?")
_LARGEST_S = 9_999_999_999  # what ten digits can say; a date further away is as good as an eleventh
_MOST_VALUES = 16
_LONGEST = 256


def parse_retry_after(
    values: Sequence[str], *, server_date: str | None, now_epoch_s: float | None
) -> float | None:
    """Return the seconds to wait from now, or None if no value is readable.

    >>> parse_retry_after(["5.5"], server_date=None, now_epoch_s=None)
    6.0

    Args:
        values: All Retry-After values of one response. A date in the past requests 0.
        server_date: The Date header of the response.
        now_epoch_s: This process's clock, used for dates only if the response has no readable Date.
    """
    base_epoch_s = parse_http_date(server_date) if server_date is not None else None
    if base_epoch_s is None:
        base_epoch_s = now_epoch_s
    waits = [
        wait_s
        for value in values[:_MOST_VALUES]
        if len(value) <= _LONGEST
        for wait_s in _waits(value.strip(" \t"), base_epoch_s)
    ]
    return max(waits, default=None)


def server_hint(headers: Mapping[str, Sequence[str]], *, now_epoch_s: float | None) -> float | None:
    """Return the wait that a response's *headers* (lower-case names) request.

    ``retry-after-ms`` comes first, then Retry-After, then RateLimit.
    """
    values = [value.strip(" \t") for value in headers.get("retry-after-ms", ())[:_MOST_VALUES]]
    waits = [int(ms[1]) / 1000 for value in values if (ms := _MILLISECONDS.fullmatch(value))]
    if waits:
        return max(waits)
    dates = headers.get("date", ())
    wait_s = parse_retry_after(
        headers.get("retry-after", ()), server_date=dates[0] if dates else None, now_epoch_s=now_epoch_s
    )
    return wait_s if wait_s is not None else ratelimit_wait_s(parse_ratelimit(headers))


def clamp_hint(hint_s: float, *, daily_limit: bool = False, cap_s: float = HINT_CAP_S) -> float:
    """Return *hint_s* within 0 and *cap_s* (default 15 min); a known daily limit allows up to 24 h."""
    return max(0.0, min(hint_s, DAILY_PARK_CAP_S if daily_limit else cap_s))


def hinted_delay(hint_s: float, cap_s: float, d: float, draw: float) -> float:
    """Return min(hint, cap) + uniform(0, max(d, 10 % of it)): never before the hint, never all at once.

    *d* is the nominal backoff of this attempt and *draw* a random number in [0, 1).
    """
    wait_s = clamp_hint(hint_s, cap_s=cap_s)
    return wait_s + checked_draw(draw) * max(d, wait_s / 10)


def _waits(value: str, base_epoch_s: float | None) -> Iterator[float]:
    """Yield the waits that one header value requests: one, several ("120, 5"), or none."""
    numbers = [_seconds(part.strip(" \t")) for part in value.split(",")]
    readable = [number for number in numbers if number is not None]
    if len(readable) == len(numbers):
        yield from readable
        return
    until_epoch_s = parse_http_date(value)
    if until_epoch_s is None:
        until_epoch_s = parse_rfc_3339(value)
    if until_epoch_s is not None and base_epoch_s is not None:
        wait_s = until_epoch_s - base_epoch_s
        if wait_s <= _LARGEST_S:
            yield max(0.0, wait_s)


def _seconds(text: str) -> float | None:
    match = _SECONDS.fullmatch(text)
    if match is None:
        return None
    return float(int(match[1]) + (1 if match[2] and int(match[2]) else 0))
