"""What runs a kind of job, and what it sees while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from fairlead.engine.ports import Job, Json
from fairlead.errors import InvalidConfigError
from fairlead.policy.failures.retry import DEFAULT_POLICY, RetryPolicy
from fairlead.policy.jobs.job import LONGEST_DELAY_S, Cancel, Snooze
from fairlead.policy.jobs.lane import Scope, ScopeKind
from fairlead.policy.jobs.payload import encode_args
from fairlead.policy.text.names import check_name
from fairlead.policy.text.number import number_of

JOB_TIMEOUT_S = 60.0
SAVED = "fairlead.saved"
"""Where the stored args of a job hold what its runs saved."""

OnError = Callable[[Exception, "JobContext"], object]

PauseScope = Literal["group", "tenant", "provider"]
"""What a handler may pause: the group of its job, all work of its tenant, or of its provider."""


@dataclass(frozen=True, slots=True)
class RequestedPause:
    """A pause that a run asked for. *scope* None: its job names nothing of the kind that was to be paused."""

    scope: Scope | None
    for_s: float
    reason: str


current_job: ContextVar[JobContext | None] = ContextVar("fairlead_job", default=None)
"""The run that this code is a part of; None outside of jobs."""


class JobContext:
    """One run of one job, as its handler sees it.

    A handler ends a run by returning: an outcome of policy/jobs/job.py, or anything else as the result. All
    of it may be used from a thread, too, where plain functions run.
    """

    __slots__ = (
        "_call_waiting_since",
        "_lists_started",
        "_pauses",
        "_progressed",
        "_remaining_s",
        "_requested_outcome",
        "_saved",
        "_stopped_by_worker",
        "job",
        "timeout_s",
    )

    def __init__(
        self,
        job: Job,
        remaining_s: Callable[[], float],
        call_waiting_since: float | None = None,
        *,
        timeout_s: float = JOB_TIMEOUT_S,
    ) -> None:
        self.job = job
        self.timeout_s = timeout_s
        """How long a run of its kind may take."""
        self._call_waiting_since = call_waiting_since
        """Since when a call of the job waits for a slot, over all its runs, on the monotonic clock (R26)."""
        self._lists_started: dict[str, int] = {}
        """How often this run has begun to read a list, by what it saves of it."""
        self._stopped_by_worker = False
        """Whether its worker has ended this run. The task itself does not tell: in Python before 3.13
        a TaskGroup whose child failed leaves it as if it had been cancelled."""
        self._progressed = False
        """Whether this run saved anything but what there was: so much of the work is behind the job."""
        self._remaining_s = remaining_s
        self._requested_outcome: Snooze | Cancel | None = None
        self._pauses: dict[Scope | None, RequestedPause] = {}
        self._saved: dict[str, Json] | None = None

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
        args = self.job.args
        return {name: value for name, value in args.items() if name != SAVED} if SAVED in args else args

    @property
    def saved(self) -> Mapping[str, Json]:
        """What this run and those before it saved."""
        return self.job.args.get(SAVED, {}) if self._saved is None else self._saved

    def save(self, name: str, value: Json) -> None:
        """Keep *value* as `saved` for the next run of this job, should there be one: how far it has come.

        It is written with the outcome of the run, a snooze or a failure, and the redrive of a dead letter has
        it, too. A run whose worker is lost writes none, so the next one begins where the last that ended had
        come to. InvalidInputError where it cannot be stored: together with the args 64 KiB of JSON at most.
        """
        saved = {**self.saved, name: value}
        encode_args({**self.job.args, SAVED: saved}, tenant=self.tenant)
        self._progressed = saved != self.job.args.get(SAVED, {})
        self._saved = saved

    @property
    def _next_args(self) -> Mapping[str, Json] | None:
        """The args as the next run is to have them; None: as they are."""
        return None if self._saved is None else {**self.job.args, SAVED: self._saved}

    @property
    def group(self) -> str:
        """What is paused with it: an account by default (``shopify/default``); "" where it has no group."""
        return self.job.group_key

    @property
    def _requested_pauses(self) -> tuple[RequestedPause, ...]:
        """What this run asked to be paused, once per scope."""
        return tuple(self._pauses.values())

    def snooze(self, delay_s: float, reason: str = "snoozed by its handler") -> Snooze:
        """Run again after *delay_s* seconds, no attempt burnt. Counts even if its value is not returned."""
        self._requested_outcome = Snooze(delay_s, reason)
        return self._requested_outcome

    def cancel(self, reason: str) -> Cancel:
        """End without a dead letter. Counts even if its value is not returned."""
        self._requested_outcome = Cancel(reason)
        return self._requested_outcome

    def pause(
        self,
        for_s: float,
        *,
        scope: PauseScope = "group",
        reason: str = "the provider asked to wait",
        group: str | None = None,
    ) -> Snooze:
        """Pause this job's group for *for_s* seconds, and run this job again after that.

        Use it after a 429. No worker starts a job of the group during the pause, whatever its queue. Other
        groups run on, and the run does not count as an attempt. The pause is written when the run ends, even
        if you do not return this value.

        Args:
            for_s: Seconds from 0 to 366 days.
            scope: ``group``, ``tenant`` (all its jobs) or ``provider`` (all tenants' jobs for it).
            reason: Shown wherever the pause is listed.
            group: Another group of the same tenant. Default: the job's own, which is its account if the job
                names a provider. For a job without a group only this job waits, and ``group_pause_failed``
                is emitted.

        Raises:
            InvalidInputError: *for_s* is out of range.
        """
        outcome = self._requested_outcome = Snooze(for_s, reason)
        target = self._scope(scope, group)
        earlier = self._pauses.get(target)
        if earlier is None or earlier.for_s < for_s:
            self._pauses[target] = RequestedPause(target, float(for_s), reason)
        return outcome

    def _scope(self, of: PauseScope, group: str | None) -> Scope | None:
        job = self.job
        if of == "tenant":
            return Scope(ScopeKind.TENANT, job.tenant_id)
        if of == "provider":
            return Scope(ScopeKind.PROVIDER, job.provider) if job.provider else None
        key = job.group_key if group is None else group
        return Scope(ScopeKind.GROUP, key, job.tenant_id) if key else None


@dataclass(frozen=True, slots=True)
class Handler:
    """How jobs of *kind* are run. *timeout_s* bounds a run (default 60); *retry* defaults to SPEC's.

    *queue* is where they wait unless enqueue says otherwise: workers that are told no queues take it.
    *transient*: exceptions that may pass by themselves. *on_error* is called with each exception of a run
    that counts as a failure.
    """

    kind: str
    run: Callable[[JobContext], Awaitable[object]]
    timeout_s: float = JOB_TIMEOUT_S
    retry: RetryPolicy = DEFAULT_POLICY
    queue: str = "default"
    transient: tuple[type[Exception], ...] = ()
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        check_name("kind", self.kind)
        check_name("queue", self.queue)
        if not 0 < number_of(self.timeout_s) <= LONGEST_DELAY_S:  # NaN fails it, too
            hint = "give seconds above 0"
            raise InvalidConfigError(f"{self.timeout_s} is no timeout for kind {self.kind!r}", hint=hint)


def by_kind(handlers: Iterable[Handler]) -> Mapping[str, Handler]:
    """The handlers by kind; InvalidConfigError where two claim one."""
    found: dict[str, Handler] = {}
    for handler in handlers:
        if handler.kind in found:
            hint = "name one of them otherwise"
            raise InvalidConfigError(f"two handlers for kind {handler.kind!r}", hint=hint)
        found[handler.kind] = handler
    return MappingProxyType(found)
