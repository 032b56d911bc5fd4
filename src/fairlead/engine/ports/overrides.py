"""Manual overrides of the gate, in durable storage. Spec: G6, G8, G12."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fairlead.policy.limits.override import OverrideKind, OverrideScope


@dataclass(frozen=True, slots=True)
class Rollout:
    """The gradual return of limits: begun *age_s* before it was read, one step every *step_s*."""

    age_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Override:
    """A manual change of the gate in force. *rollout* None: its limits do not return by themselves."""

    kind: OverrideKind
    scope: OverrideScope
    reason: str
    actor: str
    since: datetime
    rollout: Rollout | None = None


class OverrideStore(Protocol):
    """The overrides: few rows, read whole by every process every second."""

    async def search(self) -> Sequence[Override]:
        """Return all overrides in force, the widest scope first."""
        ...

    async def put(self, kind: OverrideKind, scope: OverrideScope, *, reason: str, actor: str) -> None:
        """Put an override in force. On a repeat the newer reason and actor count, and a rollout ends."""
        ...

    async def end(self, kind: OverrideKind, scope: OverrideScope) -> bool:
        """End the override of exactly this kind and scope; return False if none was in force."""
        ...

    async def start_rollout(self, scope: OverrideScope, step_s: float) -> bool:
        """Start to restore disabled limits step by step; return False if there is nothing to start."""
        ...
