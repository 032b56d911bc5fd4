"""The job ``clean_up``: delete expired rows in small batches while its time lasts. Spec: Q12."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import DeadLetterStore, JobStore, ScheduleStore, SessionStore
from fairlead.policy.jobs.dead_letter import DEFAULT_DEAD_LETTER_RULES
from fairlead.policy.jobs.lane import CLEAN_UP

BATCH = 1000
_DAY_S = 86_400.0
_TIMEOUT_S = 300.0
ENDPOINTS_KEPT_S = 7 * _DAY_S
"""How long the state of an unused token endpoint is stored."""
_SPARE_S = 10.0
"""The least time left of the job's timeout for another batch."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished data is stored, in seconds."""

    jobs: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {"completed": _DAY_S, "cancelled": 7 * _DAY_S, "discarded": 30 * _DAY_S}
        )
    )
    """By final state: completed 24 h, cancelled 7 d, discarded 30 d, as long as its dead letter."""
    dead_letters_s: float = 30 * _DAY_S
    """Resolved and abandoned entries; open ones are never deleted."""
    dead_letter_bound: int = DEFAULT_DEAD_LETTER_RULES.bound
    """Entries of one queue beyond which closed ones go early."""
    schedule_runs_s: float = 7 * _DAY_S
    """Runs of schedules."""
    sessions_s: float = 7 * _DAY_S
    """Sessions that stopped or were lost."""


DEFAULT_RETENTION = Retention()

Prune = Callable[[], Awaitable[int]]
"""Deletes one batch and returns the number of deleted rows."""


class Pruner:
    """The pruner of every table. *others* are further clean-ups by name, each called once a run."""

    def __init__(
        self,
        jobs: JobStore,
        dead_letters: DeadLetterStore,
        schedule_store: ScheduleStore,
        sessions: SessionStore,
        *,
        retention: Retention = DEFAULT_RETENTION,
        others: Mapping[str, Prune] = MappingProxyType({}),
    ) -> None:
        keep = retention
        self._prunes: dict[str, Prune] = {
            "jobs": lambda: jobs.prune(keep.jobs, BATCH),
            "dead_letters": lambda: dead_letters.prune(keep.dead_letters_s, keep.dead_letter_bound, BATCH),
            "schedule_runs": lambda: schedule_store.prune(keep.schedule_runs_s, BATCH),
            "sessions": lambda: sessions.prune(keep.sessions_s, BATCH),
        }
        self._others = others

    def handler(self) -> Handler:
        """Return the handler of kind ``clean_up``."""
        return Handler(CLEAN_UP, self.run, timeout_s=_TIMEOUT_S)

    async def run(self, context: JobContext) -> dict[str, int]:
        """Prune, and return the number of deleted rows by table. The next run deletes what is left."""
        pruned = {name: await _while_time(prune, context) for name, prune in self._prunes.items()}
        return pruned | {name: await prune() for name, prune in self._others.items()}


async def _while_time(prune: Prune, context: JobContext) -> int:
    total = 0
    while context.remaining_s > _SPARE_S:
        done = await prune()
        total += done
        if done < BATCH:
            break
    return total
