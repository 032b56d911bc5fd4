"""Breakers that this process knows to be open: their calls are refused before a token is asked for (R31)."""

from __future__ import annotations

from fairlead.clock import Clock
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import GateClosed

_MOST = 50_000


class KnownOpen:
    """Remembers refusals of the gate until they end; the gate alone decides when a probe may go."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[tuple[ConnectionKey, str], float] = {}

    def note(self, key: ConnectionKey, host: str, closed: GateClosed) -> None:
        """The gate has refused a call; only a breaker that is open is remembered."""
        if closed.reason == "breaker" and closed.retry_after_s is not None:
            if len(self._until_s) >= _MOST:
                self._until_s.clear()
            self._until_s[key, host] = self._clock.monotonic() + closed.retry_after_s

    def check(self, key: ConnectionKey, host: str) -> None:
        """GateClosed while the breaker of *key* and *host* is known to be open."""
        until_s = self._until_s.get((key, host)) if self._until_s else None
        if until_s is None:
            return
        left_s = until_s - self._clock.monotonic()
        if left_s <= 0:
            del self._until_s[key, host]
            return
        raise GateClosed(
            f"no room for the call: the breaker lets it through in {left_s:.3g} s at the earliest",
            tenant=key.tenant,
            provider=key.provider,
            retry_after_s=left_s,
            reason="breaker",
        )
