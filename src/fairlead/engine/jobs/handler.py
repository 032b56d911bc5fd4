"""The handler of a kind of job, and the context of one run."""

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
"""How long a run may take, unless its handler says otherwise."""
SAVED = "fairlead.saved"
"""The field of a job's stored args for the values that its runs saved."""

OnError = Callable[[Exception, "JobContext"], object]
"""Called with the exception that failed a run, and the context of that run."""

PauseScope = Literal["group", "tenant", "provider"]
"""What a handler may pause: the group of its job, or all jobs of its tenant or its provider."""


@dataclass(frozen=True, slots=True)
class RequestedPause:
    """A pause that a run requested. *scope* None: its job has no such scope."""

    scope: Scope | None
    for_s: float
    reason: str


current_job: ContextVar[JobContext | None] = ContextVar("fairlead_job", default=None)
"""The context of the current run; None outside of jobs."""


class JobContext:
    """One run of one job, as its handler sees it.

    A handler ends a run by returning: an outcome of policy/jobs/job.py, or any other value as the result. All
    methods may also be called from the thread of a plain function.
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
        """When a call of the job started to wait for a slot, over all its runs; monotonic. Spec: R26."""
        self._lists_started: dict[str, int] = {}
        """How often this run has started to read a list, by the name of its saved cursor."""
        self._stopped_by_worker = False
        """True once the worker has cancelled this run. The task does not show it: in Python before 3.13 a
        TaskGroup with a failed child leaves it as if it had been cancelled."""
        self._progressed = False
        """True if this run saved a new value: the job has made progress."""
        self._remaining_s = remaining_s
        self._requested_outcome: Snooze | Cancel | None = None
        self._pauses: dict[Scope | None, RequestedPause] = {}
        self._saved: dict[str, Json] | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds until this run is cancelled by its timeout or its worker's drain. Never below 0."""
        return max(0.0, self._remaining_s())

    @property
    def attempt(self) -> int:
        """1 on the first run."""
        return self.job.attempt

    @property
    def tenant(self) -> str:
        """The tenant of the job."""
        return self.job.tenant_id

    @property
    def provider(self) -> str | None:
        """The provider that the job names, or None."""
        return self.job.provider

    @property
    def args(self) -> Mapping[str, Json]:
        """The args that were enqueued."""
        args = self.job.args
        return {name: value for name, value in args.items() if name != SAVED} if SAVED in args else args

    @property
    def saved(self) -> Mapping[str, Json]:
        """The values that this run and earlier ones saved."""
        return self.job.args.get(SAVED, {}) if self._saved is None else self._saved

    def save(self, name: str, value: Json) -> None:
        """Store *value* as `saved[name]` for the next run of this job, for example how far it got.

        The value is written with the outcome of this run, if that is a snooze or a failure, and a redrive of
        its dead letter has it too. If the worker is lost during the run, the value is lost, too.

        Raises:
            InvalidInputError: It cannot be stored: args and saved values together may have 64 KiB of JSON.
        """
        saved = {**self.saved, name: value}
        encode_args({**self.job.args, SAVED: saved}, tenant=self.tenant)
        self._progressed = saved != self.job.args.get(SAVED, {})
        self._saved = saved

    @property
    def _next_args(self) -> Mapping[str, Json] | None:
        """The args to store for the next run, with the saved values; None if this run saved nothing."""
        return None if self._saved is None else {**self.job.args, SAVED: self._saved}

    @property
    def group(self) -> str:
        """The group of the job, which is paused as a whole: by default an account (``shopify/default``).

        It is "" without a group.
        """
        return self.job.group_key

    @property
    def _requested_pauses(self) -> tuple[RequestedPause, ...]:
        """The pauses that this run requested, one for each scope."""
        return tuple(self._pauses.values())

    def snooze(self, delay_s: float, reason: str = "snoozed by its handler") -> Snooze:
        """Run the job again after *delay_s* seconds, without counting an attempt.

        It applies even if the handler does not return this value but None.
        """
        self._requested_outcome = Snooze(delay_s, reason)
        return self._requested_outcome

    def cancel(self, reason: str) -> Cancel:
        """End the job without a dead letter, even if the handler does not return this value but None."""
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
        """Return what a pause of this kind covers; None if the job has no group or names no provider."""
        job = self.job
        if of == "tenant":
            return Scope(ScopeKind.TENANT, job.tenant_id)
        if of == "provider":
            return Scope(ScopeKind.PROVIDER, job.provider) if job.provider else None
        key = job.group_key if group is None else group
        return Scope(ScopeKind.GROUP, key, job.tenant_id) if key else None


@dataclass(frozen=True, slots=True)
class Handler:
    """How jobs of *kind* are run.

    Attributes:
        timeout_s: Bounds a run. Default 60.
        retry: The retry policy. Default: by category.
        queue: The queue of its jobs, unless `enqueue` names another.
        transient: Exceptions that count as transient failures.
        on_error: Called with each exception that fails a run.
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
    """Return the handlers by kind.

    Raises:
        InvalidConfigError: Two handlers have the same kind.
    """
    handlers_by_kind: dict[str, Handler] = {}
    for handler in handlers:
        if handler.kind in handlers_by_kind:
            hint = "give one of them another name"
            raise InvalidConfigError(f"two handlers for kind {handler.kind!r}", hint=hint)
        handlers_by_kind[handler.kind] = handler
    return MappingProxyType(handlers_by_kind)
