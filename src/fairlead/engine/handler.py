"""What runs a kind of job, and what it sees while it runs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fairlead.engine.ports import Job, Json
from fairlead.errors import ConfigInvalid
from fairlead.policy.job import LONGEST_DELAY_S, Cancel, Snooze
from fairlead.policy.names import check_name
from fairlead.policy.retry import DEFAULT_POLICY, RetryPolicy

JOB_TIMEOUT_S = 60.0


class JobContext:
    """One run of one job, as its handler sees it.

    A handler ends a run by returning: an outcome of policy/job.py, or anything else as the result.
    """

    __slots__ = ("_asked", "_remaining_s", "job")

    def __init__(self, job: Job, remaining_s: Callable[[], float]) -> None:
        self.job = job
        self._remaining_s = remaining_s
        self._asked: Snooze | Cancel | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds until this run is ended from outside: its timeout, or its worker's drain. Never below 0."""
        return max(0.0, self._remaining_s())

    @property
    def attempt(self) -> int:
        """1 on the first run."""
        return self.job.attempt

    @property
    def tenant(self) -> str:
        """Whose work this is."""
        return self.job.tenant_id

    @property
    def provider(self) -> str | None:
        """The vendor it concerns, if any."""
        return self.job.provider

    @property
    def args(self) -> Mapping[str, Json]:
        """What was enqueued."""
        return self.job.args

    @property
    def asked(self) -> Snooze | Cancel | None:
        """The last ``snooze`` or ``cancel`` of this run."""
        return self._asked

    def snooze(self, delay_s: float, reason: str = "snoozed by its handler") -> Snooze:
        """Run again after *delay_s* seconds, no attempt burnt. Counts even if its value is not returned."""
        self._asked = Snooze(delay_s, reason)
        return self._asked

    def cancel(self, reason: str) -> Cancel:
        """End without a dead letter. Counts even if its value is not returned."""
        self._asked = Cancel(reason)
        return self._asked


@dataclass(frozen=True, slots=True)
class Handler:
    """How jobs of *kind* are run. *timeout_s* bounds a run (default 60); *retry* defaults to SPEC's."""

    kind: str
    run: Callable[[JobContext], Awaitable[object]]
    timeout_s: float = JOB_TIMEOUT_S
    retry: RetryPolicy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        check_name("kind", self.kind)
        if not (math.isfinite(self.timeout_s) and 0 < self.timeout_s <= LONGEST_DELAY_S):
            hint = "give seconds above 0"
            raise ConfigInvalid(f"{self.timeout_s} is no timeout for kind {self.kind!r}", hint=hint)


def by_kind(handlers: Iterable[Handler]) -> Mapping[str, Handler]:
    """The handlers by kind; ConfigInvalid where two claim one."""
    found: dict[str, Handler] = {}
    for handler in handlers:
        if handler.kind in found:
            hint = "name one of them otherwise"
            raise ConfigInvalid(f"two handlers for kind {handler.kind!r}", hint=hint)
        found[handler.kind] = handler
    return MappingProxyType(found)
