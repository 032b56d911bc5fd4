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

Held = Literal["group", "tenant", "provider"]
"""What a handler may pause: the group of its job, all work of its tenant, or of its provider."""


@dataclass(frozen=True, slots=True)
class AskedPause:
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
        "_asked",
        "_pauses",
        "_remaining_s",
        "_saved",
        "call_waits_since_s",
        "came_on",
        "is_cut",
        "job",
        "lists_begun",
        "timeout_s",
    )

    def __init__(
        self,
        job: Job,
        remaining_s: Callable[[], float],
        call_waits_since_s: float | None = None,
        *,
        timeout_s: float = JOB_TIMEOUT_S,
    ) -> None:
        self.job = job
        self.timeout_s = timeout_s
        """How long a run of its kind may take."""
        self.call_waits_since_s = call_waits_since_s
        """Since when a call of the job waits for a slot, over all its runs, on the monotonic clock (R26)."""
        self.lists_begun: dict[str, int] = {}
        """How often this run has begun to read a list, by what it saves of it."""
        self.is_cut = False
        """Whether its worker has ended this run. The task itself does not tell: in Python before 3.13
        a TaskGroup whose child failed leaves it as if it had been cancelled."""
        self.came_on = False
        """Whether this run saved anything but what there was: so much of the work is behind the job."""
        self._remaining_s = remaining_s
        self._asked: Snooze | Cancel | None = None
        self._pauses: dict[Scope | None, AskedPause] = {}
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
        self.came_on = saved != self.job.args.get(SAVED, {})
        self._saved = saved

    @property
    def args_after(self) -> Mapping[str, Json] | None:
        """The args as the next run is to have them; None: as they are."""
        return None if self._saved is None else {**self.job.args, SAVED: self._saved}

    @property
    def group(self) -> str:
        """What is paused with it: an account by default (``shopify/default``); "" where it has no group."""
        return self.job.group_key

    @property
    def asked(self) -> Snooze | Cancel | None:
        """The last ``snooze``, ``cancel`` or ``pause_group`` of this run."""
        return self._asked

    @property
    def pauses(self) -> tuple[AskedPause, ...]:
        """What this run asked to be paused, once per scope."""
        return tuple(self._pauses.values())

    def snooze(self, delay_s: float, reason: str = "snoozed by its handler") -> Snooze:
        """Run again after *delay_s* seconds, no attempt burnt. Counts even if its value is not returned."""
        self._asked = Snooze(delay_s, reason)
        return self._asked

    def cancel(self, reason: str) -> Cancel:
        """End without a dead letter. Counts even if its value is not returned."""
        self._asked = Cancel(reason)
        return self._asked

    def pause_group(
        self,
        for_s: float,
        *,
        reason: str = "the provider asked to wait",
        of: Held = "group",
        group: str | None = None,
    ) -> Snooze:
        """Hold back all work of this job's group for *for_s* seconds, and run again after that.

        For a handler that meets a 429: no worker begins a job of the group before, whatever its queue; the
        other groups run on, and no attempt is burnt. It takes effect when the run ends, even if the value
        given back is not returned. *of*: ``group`` (default), ``tenant`` (all its work) or ``provider`` (all
        tenants' work with it). *group*: another one of the same tenant; default the job's own, which is its
        account where it was enqueued with a provider. A job that has none only waits itself, and that is
        told as ``group_not_paused``. Raises InvalidInputError for a time outside 0 s to 366 days.
        """
        self._asked = Snooze(for_s, reason)
        scope = self._scope(of, group)
        before = self._pauses.get(scope)
        if before is None or before.for_s < for_s:
            self._pauses[scope] = AskedPause(scope, float(for_s), reason)
        return self._asked

    def _scope(self, of: Held, group: str | None) -> Scope | None:
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
