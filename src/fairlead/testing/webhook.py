"""Check the signature of a webhook, in your tests and in your receiver.

    event = verify(secret, request.headers, await request.body())

The format is Standard Webhooks, so a library for it does the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from fairlead._core.secret import Secret
from fairlead.errors import InvalidInputError
from fairlead.policy.notifications.webhook import ID, SIGNATURE, TIMESTAMP, matches, signing_key

TOLERANCE_S = 300.0


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_s: float = TOLERANCE_S,
    now: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """Return the event in *body* if *secret* signed it; its ``webhook-id`` is in it as ``data.event_id``.

    The same event can arrive again: compare its id.

    Args:
        body: The bytes as received, not JSON that was parsed and written again.
        tolerance_s: The largest age of the signature in seconds.
        now: The wall clock.

    Raises:
        InvalidInputError: The signature is missing, wrong, too old or too new. Answer 400 and do nothing.
    """
    fields = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not fields.get(name)]
    if missing:
        raise InvalidInputError(
            f"the webhook has no header {missing[0]}", hint="it did not come from fairlead"
        )
    timestamp = fields[TIMESTAMP]
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise InvalidInputError("the webhook's timestamp is no number", hint="it did not come from fairlead")
    if not matches(signing_key(Secret(secret)), fields[ID], int(timestamp), body, fields[SIGNATURE]):
        hint = "use the secret of notifications.webhook_secret and the body as it came"
        raise InvalidInputError("the webhook's signature does not fit", hint=hint)
    if abs(now() - int(timestamp)) > tolerance_s:
        raise InvalidInputError(
            "the webhook is too old or too new", hint="it was replayed, or a clock is wrong"
        )
    event: dict[str, Any] = json.loads(body)
    return event
