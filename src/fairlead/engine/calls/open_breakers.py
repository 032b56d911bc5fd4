"""Breakers that were open a moment ago: their calls are refused before a token is asked for (R31)."""

from __future__ import annotations

from collections.abc import Callable

from fairlead._core.clock import Clock
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import FairleadError, LimitExceededError

KNOWN_S = 1.0
"""How long a refusal is gone by: what people reset or switch by hand holds within 2 s everywhere (G12)."""
_MOST = 50_000


class OpenBreakerCache:
    """Remembers refusals of the gate for a moment; the gate alone decides when a probe may go."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[ConnectionKey, str], tuple[float, float]] = {}

    def record(self, key: ConnectionKey, host: str, error: FairleadError) -> None:
        """A call was not let in; only a breaker that is open is remembered."""
        if (
            isinstance(error, LimitExceededError)
            and error.reason == "breaker"
            and error.retry_after_s is not None
        ):
            if len(self._known) >= _MOST:
                self._known.clear()
            now_s = self._clock.monotonic()
            until_s = now_s + error.retry_after_s
            self._known[key, host] = until_s, min(until_s, now_s + KNOWN_S)

    def check(self, key: ConnectionKey, host: str, is_limited: Callable[[], bool]) -> None:
        """LimitExceededError while the breaker of *key* and *host* is known to be open, and the call *is_limited*."""
        known = self._known.get((key, host)) if self._known else None
        if known is None:
            return
        until_s, forget_s = known
        now_s = self._clock.monotonic()
        if now_s >= forget_s:
            del self._known[key, host]
            return
        if not is_limited():
            return
        left_s = until_s - now_s
        raise LimitExceededError(
            f"no room for the call: the breaker lets it through in {left_s:.3g} s at the earliest",
            tenant=key.tenant,
            provider=key.provider,
            retry_after_s=left_s,
            reason="breaker",
        )
