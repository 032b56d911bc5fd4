"""Mercado Libre: no figures, only a refusal, which its proxy writes as plain text or as JSON."""

from __future__ import annotations

from fairlead.policy.limits.feedback.raw_response import (
    REQUESTS,
    LimitObservation,
    RawResponse,
    refusal_wait_s,
)
from fairlead.policy.limits.feedback.readers import member

_CODE = "local_rate_limited"


def mercadolibre(reply: RawResponse, now_epoch_s: float | None) -> tuple[LimitObservation, ...]:
    """Return the refusal with the word ``local_rate_limited``, whatever its status and content type.

    Source: reference/gate.md §6 (Envoy's local rate limit: text/plain, 18 bytes).
    """
    if reply.status < 400:
        return ()
    is_refused = (reply.text or "")[:64].strip() == _CODE or any(
        member(reply.body, key) == _CODE for key in ("code", "error", "message")
    )
    return (
        (LimitObservation(REQUESTS, wait_s=refusal_wait_s(reply, now_epoch_s), code=_CODE),)
        if is_refused
        else ()
    )
