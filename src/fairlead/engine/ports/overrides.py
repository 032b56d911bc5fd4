"""What people switched by hand at the gate, kept where it is not lost (G6, G8, G12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fairlead.policy.limits.override import OverrideKind, OverrideScope


@dataclass(frozen=True, slots=True)
class Rollout:
    """Limits come back: since *age_s* seconds when it was read, a step each *step_s* seconds."""

    age_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Override:
    """One switch in force. *fading* None: nothing of it comes back by itself."""

    act: OverrideKind
    reach: OverrideScope
    reason: str
    actor: str
    since: datetime
    rollout: Rollout | None = None


class OverrideStore(Protocol):
    """Few rows, read whole by every process each second."""

    async def search(self) -> Sequence[Override]:
        """All switches in force, the widest reach first."""
        ...

    async def put(self, act: OverrideKind, reach: OverrideScope, *, reason: str, actor: str) -> None:
        """Switch it. Switched already: the newer reason and actor count, and nothing comes back of it."""
        ...

    async def end(self, act: OverrideKind, reach: OverrideScope) -> bool:
        """Take a switch back, named as it was made; False if there was none in force."""
        ...

    async def fade(self, reach: OverrideScope, step_s: float) -> bool:
        """Let the limits of what is disabled come back step by step; False if there is nothing to begin."""
        ...
