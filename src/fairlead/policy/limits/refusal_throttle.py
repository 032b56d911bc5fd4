"""A tenant that repeats refused requests without waiting is refused locally. Spec: G1.

Only refused requests count: admitted calls of a tenant are never throttled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_REFUSED = 100
"""Refused requests of one tenant within a second."""
WINDOW_S = 1.0
_MOST_TENANTS = 10_000


@dataclass(slots=True)
class _Window:
    since_mono: float
    refused: int = 0


@dataclass(slots=True)
class RefusalThrottle:
    """Counts refusals per tenant, in this process."""

    most: int = MOST_REFUSED
    _windows: dict[str, _Window] = field(default_factory=dict)

    def throttled_s(self, tenant: str, now_mono: float) -> float | None:
        """Return the seconds for which *tenant* is refused; None: it may ask."""
        window = self._windows.get(tenant)
        if window is None or now_mono >= window.since_mono + WINDOW_S or window.refused < self.most:
            return None
        return window.since_mono + WINDOW_S - now_mono

    def refused(self, tenant: str, now_mono: float) -> bool:
        """Count a refusal; return True when the tenant reaches the bound."""
        window = self._windows.get(tenant)
        if window is None or now_mono >= window.since_mono + WINDOW_S:
            if len(self._windows) >= _MOST_TENANTS:
                self._windows.clear()
            window = self._windows[tenant] = _Window(now_mono)
        window.refused += 1
        return window.refused == self.most
