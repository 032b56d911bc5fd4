"""The expected cost of a call without a stated cost, from earlier calls of its operation. Spec: G2.

Some providers charge the most that a query may cost before they run it, and refund the rest. If the response
states that charge, it is what is estimated here, else the final cost. An estimate rises at once and falls slowly,
because a call above its estimate is refused, while one below it is only refunded later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

FALLS_BY = 0.2
"""The share of the difference by which an estimate falls after a cheaper call."""
UNKNOWN = 1.0
"""Units that a call of an unknown operation is expected to cost."""
_MAX_OPERATIONS = 10_000
_NOTHING: Mapping[str, float] = {}


@dataclass(slots=True)
class CostEstimates:
    """The expected cost in units, by operation and limit, in this process.

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
            if len(self._costs) >= _MAX_OPERATIONS:
                self._costs.clear()
            costs = self._costs[operation] = {}
        previous = costs.get(limit)
        costs[limit] = (
            cost if previous is None or cost > previous else previous + (cost - previous) * FALLS_BY
        )
