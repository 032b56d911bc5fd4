"""The count of responses that no rule matched, by provider.

Every response is counted; the event is emitted at a limited rate, with a later attempt of this process if need
be. Spec: DEFAULTS §2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.events import Emit, ResponsesUnclassified

INTERVAL_S = 10.0
"""The least time between two events about one provider."""


@dataclass(slots=True)
class _Count:
    total: int = 0
    pending: int = 0
    next_mono: float = -math.inf
    status: int | None = None
    code: str = ""


class UnclassifiedCounter:
    """The counters of one process. *due_mono*: when the next event is due."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._counts: dict[str, _Count] = {}
        self.due_mono = math.inf

    def count(self, provider: str, status: int | None, code: str) -> None:
        """Count a response of *provider* that no rule matched. The next event reports the last *status* and *code*."""
        count = self._counts.setdefault(provider, _Count())
        count.total += 1
        count.pending += 1
        count.status, count.code = status, code
        self.due_mono = min(self.due_mono, count.next_mono)

    def emit_due(self, now_mono: float) -> None:
        """Emit the events that are due."""
        self.due_mono = math.inf
        for provider, count in self._counts.items():
            if not count.pending:
                continue
            if now_mono < count.next_mono:
                self.due_mono = min(self.due_mono, count.next_mono)
                continue
            new_count, count.pending, count.next_mono = count.pending, 0, now_mono + INTERVAL_S
            self._emit(ResponsesUnclassified(provider, count.status, count.code, new_count, count.total))
