"""What a call will cost, where its caller does not say: what calls of its operation cost before (G2).

A vendor takes what it thinks a query may cost before it runs it, and gives back what was not used: so the
estimate is of the former where the answer tells it, else of the latter. It rises at once and falls slowly: a
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

    _known: dict[Hashable, dict[str, float]] = field(default_factory=dict)

    def of(self, operation: Hashable) -> Mapping[str, float]:
        """What its next call is thought to cost, by limit; a limit of which nothing is known is not there."""
        return self._known.get(operation, _NOTHING)

    def record(self, operation: Hashable, limit: str, cost: float) -> None:
        """An answer told. What cost nothing was not run, and says nothing of the next."""
        if cost <= 0:
            return
        costs = self._known.get(operation)
        if costs is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            costs = self._known[operation] = {}
        known = costs.get(limit)
        costs[limit] = cost if known is None or cost > known else known + (cost - known) * FALLS_BY
