"""What a call will cost, where its caller does not say: what calls of its operation cost before (G2).

A vendor takes what it thinks a query may cost before it runs it, and gives back what was not used: so the
estimate is of the former where the response states it, else of the latter. It rises at once and falls slowly: a
call that costs more than was thought is refused, one that costs less is only paid back later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

FALLS_BY = 0.2
"""Of the difference, with each answer that cost less."""
UNKNOWN = 1.0
_MOST_KNOWN = 10_000
_NOTHING: Mapping[str, float] = {}


@dataclass(slots=True)
class CostEstimates:
    """Units by operation and limit, in this process.

    >>> costs = CostEstimates()
    >>> costs.of("products"), costs.record("products", "points", 100.0), costs.of("products")
    ({}, None, {'points': 100.0})
    >>> costs.record("products", "points", 50.0), costs.of("products")
    (None, {'points': 90.0})
    """

    _costs: dict[Hashable, dict[str, float]] = field(default_factory=dict)

    def of(self, operation: Hashable) -> Mapping[str, float]:
        """Return the expected cost of the next call by limit; a limit without a record is absent."""
        return self._costs.get(operation, _NOTHING)

    def record(self, operation: Hashable, limit: str, cost: float) -> None:
        """Record the cost that a response reported. A cost of 0 is ignored, since nothing was run."""
        if cost <= 0:
            return
        costs = self._costs.get(operation)
        if costs is None:
            if len(self._costs) >= _MOST_KNOWN:
                self._costs.clear()
            costs = self._costs[operation] = {}
        previous = costs.get(limit)
        costs[limit] = (
            cost if previous is None or cost > previous else previous + (cost - previous) * FALLS_BY
        )
