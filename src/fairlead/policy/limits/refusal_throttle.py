"""Who asks for admission again and again without heeding the answer is told so without asking anybody (G1).

Only refused requests count: a tenant whose calls are let through may ask as often as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_REFUSED = 100
"""Refused requests of one tenant within a second."""
WINDOW_S = 1.0
_MOST_TENANTS = 10_000


@dataclass(slots=True)
class _Window:
    since_s: float
    refused: int = 0


@dataclass(slots=True)
class RefusalThrottle:
    """Counts refusals per tenant, in this process."""

    most: int = MOST_REFUSED
    _windows: dict[str, _Window] = field(default_factory=dict)

    def throttled_s(self, tenant: str, now_s: float) -> float | None:
        """How long *tenant* is not to be served; None: it may ask."""
        window = self._windows.get(tenant)
        if window is None or now_s >= window.since_s + WINDOW_S or window.refused < self.most:
            return None
        return window.since_s + WINDOW_S - now_s

    def refused(self, tenant: str, now_s: float) -> bool:
        """Note a refusal; True the moment the tenant has had too many."""
        window = self._windows.get(tenant)
        if window is None or now_s >= window.since_s + WINDOW_S:
            if len(self._windows) >= _MOST_TENANTS:
                self._windows.clear()
            window = self._windows[tenant] = _Window(now_s)
        window.refused += 1
        return window.refused == self.most
