"""How many answers no rule knew, by provider, so that somebody looks (DEFAULTS §2).

Counted before anything is sampled. Told soon, and not too often; what was held back is told with a later
attempt of this process, whatever it calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.events import Emit, ResponsesUnclassified

TOLD_EACH_S = 10.0
"""How often it is told at most of a provider."""


@dataclass(slots=True)
class _Count:
    total: int = 0
    untold: int = 0
    again_s: float = -math.inf
    status: int | None = None
    code: str = ""


class Unclassified:
    """One per process; as many counts as it calls providers. *due_s*: when there is something to tell."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._counts: dict[str, _Count] = {}
        self.due_s = math.inf

    def count(self, provider: str, status: int | None, code: str) -> None:
        """One more, with *status* and *code*."""
        count = self._counts.setdefault(provider, _Count())
        count.total += 1
        count.untold += 1
        count.status, count.code = status, code
        self.due_s = min(self.due_s, count.again_s)

    def tell(self, now_s: float) -> None:
        """Tell what is due."""
        self.due_s = math.inf
        for provider, count in self._counts.items():
            if not count.untold:
                continue
            if now_s < count.again_s:
                self.due_s = min(self.due_s, count.again_s)
                continue
            told, count.untold, count.again_s = count.untold, 0, now_s + TOLD_EACH_S
            self._emit(ResponsesUnclassified(provider, count.status, count.code, told, count.total))
