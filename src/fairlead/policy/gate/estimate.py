"""What a call will cost, where its caller does not say: what calls of its operation cost before (G2).

A vendor takes what it thinks a query may cost before it runs it, and gives back what was not used: so the
estimate is of the former where the answer tells it, else of the latter. It rises at once and falls slowly: a
call that costs more than was thought is refused, one that costs less is only paid back later.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

FALLS_BY = 0.2
"""Of the difference, with each answer that cost less."""
UNKNOWN = 1.0
_MOST_KNOWN = 10_000


@dataclass(slots=True)
class CostEstimates:
    """Units by operation and limit, in this process.

    >>> costs = CostEstimates()
    >>> costs.of("products"), costs.heard("products", 100.0), costs.of("products")
    (1.0, None, 100.0)
    >>> costs.heard("products", 50.0), costs.of("products")
    (None, 90.0)
    """

    _known: dict[Hashable, float] = field(default_factory=dict)

    def of(self, operation: Hashable) -> float:
        """What its next call is thought to cost; 1 where nothing is known."""
        return self._known.get(operation, UNKNOWN)

    def heard(self, operation: Hashable, cost: float) -> None:
        """An answer told. What cost nothing was not run, and says nothing of the next."""
        if cost <= 0:
            return
        known = self._known.get(operation)
        if known is None and len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[operation] = cost if known is None or cost > known else known + (cost - known) * FALLS_BY
