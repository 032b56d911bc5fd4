"""The job ``clean_up``: delete expired rows in small batches while its time lasts. Spec: Q12."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import DeadLetterStore, JobStore, ScheduleStore, SessionStore
from fairlead.policy.jobs.dead_letter import DEFAULT_DEAD_LETTER_RULES
from fairlead.policy.jobs.lane import CLEAN_UP

BATCH_SIZE = 1000
_DAY_S = 86_400.0
_TIMEOUT_S = 300.0
ENDPOINTS_KEPT_S = 7 * _DAY_S
"""How long the state of an unused token endpoint is stored."""
_MIN_LEFT_S = 10.0
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
    """The pruner of every table.

    Args:
        retention: How long finished data is stored.
        one_batch_prunes: Further clean-ups by name. Each deletes one batch a run.
    """

    def __init__(
        self,
        jobs: JobStore,
        dead_letters: DeadLetterStore,
        schedule_store: ScheduleStore,
        sessions: SessionStore,
        *,
        retention: Retention = DEFAULT_RETENTION,
        one_batch_prunes: Mapping[str, Prune] = MappingProxyType({}),
    ) -> None:
        self._prunes: dict[str, Prune] = {
            "jobs": lambda: jobs.prune(retention.jobs, BATCH_SIZE),
            "dead_letters": lambda: dead_letters.prune(
                retention.dead_letters_s, retention.dead_letter_bound, BATCH_SIZE
            ),
            "schedule_runs": lambda: schedule_store.prune(retention.schedule_runs_s, BATCH_SIZE),
            "sessions": lambda: sessions.prune(retention.sessions_s, BATCH_SIZE),
        }
        self._one_batch_prunes = one_batch_prunes

    def handler(self) -> Handler:
        """Return the handler of kind ``clean_up``."""
        return Handler(CLEAN_UP, self.run, timeout_s=_TIMEOUT_S)

    async def run(self, context: JobContext) -> dict[str, int]:
        """Delete expired rows, and return their number by table. The next run deletes what is left."""
        pruned = {name: await _prune_while_time(prune, context) for name, prune in self._prunes.items()}
        return pruned | {name: await prune() for name, prune in self._one_batch_prunes.items()}


async def _prune_while_time(prune: Prune, context: JobContext) -> int:
    """Delete batch after batch while the job has time, and return the number of deleted rows."""
    total = 0
    while context.remaining_s > _MIN_LEFT_S:
        done = await prune()
        total += done
        if done < BATCH_SIZE:
            break
    return total
