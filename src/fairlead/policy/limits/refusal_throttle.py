"""A local throttle for a tenant that repeats refused requests without waiting. Spec: G1.

It saves the round trips to Redis of such requests. Only refused requests count: admitted calls of a tenant are
never throttled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_REFUSED = 100
"""Refused requests of one tenant in a window before it is throttled for the rest of the window."""
WINDOW_S = 1.0
_MAX_TENANTS = 10_000


@dataclass(slots=True)
class _Window:
    since_mono: float
    refused: int = 0


@dataclass(slots=True)
class RefusalThrottle:
    """Counts refusals per tenant, in this process."""

    max_refused: int = MAX_REFUSED
    _windows: dict[str, _Window] = field(default_factory=dict)

    def throttled_s(self, tenant: str, now_mono: float) -> float | None:
        """Return the seconds until *tenant* is throttled no more, or None if it is not throttled."""
        window = self._windows.get(tenant)
        if window is None or now_mono >= window.since_mono + WINDOW_S or window.refused < self.max_refused:
            return None
        return window.since_mono + WINDOW_S - now_mono

    def record_refusal(self, tenant: str, now_mono: float) -> bool:
        """Count a refused request; return True if it is the one that throttles the tenant."""
        window = self._windows.get(tenant)
        if window is None or now_mono >= window.since_mono + WINDOW_S:
            if len(self._windows) >= _MAX_TENANTS:
                self._windows.clear()
            window = self._windows[tenant] = _Window(now_mono)
        window.refused += 1
        return window.refused == self.max_refused
