"""A cache of open breakers, so that a call is refused before it needs a token. Spec: R31."""

from __future__ import annotations

from collections.abc import Callable

from fairlead._core.clock import Clock
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import FairleadError, LimitExceededError
from fairlead.policy.reasons.limit_reasons import BREAKER

CACHE_S = 1.0
"""How long a refusal is cached: a manual reset takes effect everywhere within 2 s. Spec: G12."""
_MAX_ENTRIES = 50_000


class OpenBreakerCache:
    """Recent refusals by breakers. Only the gate decides when a probe may pass."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open_breakers: dict[tuple[ConnectionKey, str], tuple[float, float]] = {}
        """By connection and host: until when the breaker is open, and until when that is cached."""

    def record(self, key: ConnectionKey, host: str, error: FairleadError) -> None:
        """Cache *error* if an open breaker refused the call."""
        if (
            isinstance(error, LimitExceededError)
            and error.reason == "breaker"
            and error.retry_after_s is not None
        ):
            if len(self._open_breakers) >= _MAX_ENTRIES:
                self._open_breakers.clear()
            now_mono = self._clock.monotonic()
            open_until_mono = now_mono + error.retry_after_s
            self._open_breakers[key, host] = open_until_mono, min(open_until_mono, now_mono + CACHE_S)

    def check(self, key: ConnectionKey, host: str, is_limited: Callable[[], bool]) -> None:
        """Raise LimitExceededError if the breaker of *key* and *host* is cached as open.

        Args:
            is_limited: Returns whether limits are enforced for the call. They are not if an override bypasses them,
                or if they are only observed; then the call goes on.
        """
        cached = self._open_breakers.get((key, host)) if self._open_breakers else None
        if cached is None:
            return
        open_until_mono, cached_until_mono = cached
        now_mono = self._clock.monotonic()
        if now_mono >= cached_until_mono:
            del self._open_breakers[key, host]
            return
        if not is_limited():
            return
        left_s = open_until_mono - now_mono
        raise LimitExceededError(
            f"no room for the call: the breaker lets it through in {left_s:.3g} s at the earliest",
            tenant=key.tenant,
            provider=key.provider,
            retry_after_s=left_s,
            reason=BREAKER.code,
        )
