"""An answer as bytes, made a Reply: JSON where it is JSON, text where it is not (V7). Never raises.

Bad UTF-8, a byte-order mark, UTF-16, brackets without end, numbers of thousands of digits: what Python cannot
read as JSON is text, and rules see it as such.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fairlead.policy.feedback.reply import Reply

LONGEST_TEXT = 256 * 1024
"""Characters that are kept of a body that is no JSON."""
_BLANK = b"\xef\xbb\xbf \t\r\n\0\xff\xfe"  # with the marks of UTF-8 and UTF-16


def reply_of(status: int, headers: Mapping[str, str | Sequence[str]], body: bytes) -> Reply:
    """The Reply of an answer whose *body* is decoded, that is without Content-Encoding.

    >>> reply_of(429, {"Retry-After": "2"}, b'{"error": "slow down"}').body
    {'error': 'slow down'}
    """
    value, text = _read(body)
    return Reply(status, headers, body=value, text=text)


def _read(body: bytes) -> tuple[object, str | None]:
    """(JSON value, None) or (None, text); (None, None) for a body without anything."""
    beginning = body[:64].lstrip(_BLANK)
    if not beginning and not body.strip(_BLANK):
        return None, None
    if not beginning.startswith(b"<"):
        try:
            return json.loads(body), None
        except (ValueError, RecursionError):  # the latter: brackets without end
            pass
    return None, body[: 4 * LONGEST_TEXT].decode("utf-8-sig", "replace")[:LONGEST_TEXT]
