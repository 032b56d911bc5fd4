"""What a program declares before it opens its Fairlead: jobs, schedules, and who is told of events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from fairlead.app.enqueued import EnqueuedJob
from fairlead.app.error_hooks import check_error_hook
from fairlead.app.job_functions import Declaration, JobFunction, retry_policy
from fairlead.app.job_requests import GroupOf, JobRequest, checked_args
from fairlead.app.threads import Threads
from fairlead.engine.jobs.handler import JOB_TIMEOUT_S, Handler, JobContext, OnError
from fairlead.engine.ports import Schedule
from fairlead.errors import InvalidConfigError
from fairlead.policy.failures.retry import RetryPolicy
from fairlead.policy.jobs.job import parse_priority
from fairlead.policy.jobs.lane import is_internal_kind
from fairlead.policy.jobs.schedule import check_schedule
from fairlead.policy.text.names import SYSTEM_TENANT

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[Concatenate[JobContext, P], R]
Missed = Literal["coalesce", "catch_up"]
Subscriber = Callable[[Mapping[str, Any]], object]
S = TypeVar("S", bound=Subscriber)

SUBSCRIBABLE_EVENTS = frozenset({"needs_reauth", "token_expiring"})


class JobRegistry(ABC):
    """The declaring half of a Fairlead; nothing is global."""

    def __init__(self) -> None:
        self._functions: dict[str, JobFunction[..., Any]] = {}
        self._schedules: dict[str, Schedule] = {}
        self._subscribers: dict[str, list[Subscriber]] = {name: [] for name in SUBSCRIBABLE_EVENTS}
        self._error_hooks: list[OnError] = []
        self._threads: Threads | None = None

    # ---- events --------------------------------------------------------------------------------

    def on(self, event: str) -> Callable[[S], S]:
        """Call the decorated function for each *event* (``needs_reauth``, ``token_expiring``).

        It runs in whichever worker process takes the notice job, at least once; register before ``run``.
        """
        if event not in SUBSCRIBABLE_EVENTS:
            known = ", ".join(sorted(SUBSCRIBABLE_EVENTS))
            raise InvalidConfigError(f"there is no event {event!r} to subscribe to", hint=f"one of: {known}")

        def register(subscriber: S) -> S:
            self._subscribers[event].append(subscriber)
            return subscriber

        return register

    def on_error(self, hook: OnError) -> OnError:
        """Call the decorated function with each exception that fails a run, and the context of its job.

        ``@fl.on_error def report(error, ctx): sentry_sdk.capture_exception(error)``. It is called on the
        event loop before the outcome is written, so it must not block. A wait, for example for a limit, is
        not a failure.

        Raises:
            InvalidConfigError: It is an ``async def``, takes other parameters, or the Fairlead is open.
        """
        self._check_in_time("on_error")
        check_error_hook(hook)
        self._error_hooks.append(hook)
        return hook

    # ---- jobs ----------------------------------------------------------------------------------

    @overload
    def job(self, function: Function[P, R], /) -> JobFunction[P, R]: ...
    @overload
    def job(
        self,
        kind: str | None = None,
        *,
        queue: str = "default",
        retry: RetryPolicy | int | None = None,
        timeout_s: float = JOB_TIMEOUT_S,
        priority: str | int = "normal",
        group: str | GroupOf | None = None,
        transient: tuple[type[Exception], ...] = (),
    ) -> Callable[[Function[P, R]], JobFunction[P, R]]: ...
    def job(
        self,
        kind: Any = None,
        *,
        queue: str = "default",
        retry: RetryPolicy | int | None = None,
        timeout_s: float = JOB_TIMEOUT_S,
        priority: str | int = "normal",
        group: str | GroupOf | None = None,
        transient: tuple[type[Exception], ...] = (),
    ) -> Any:
        """Run jobs of *kind* by the decorated function: ``@fl.job``, ``@fl.job("kind", timeout_s=10)``.

        The function takes the context first, then the args of its jobs by name, checked by their types. An
        ``async def`` runs on the event loop. A plain ``def`` runs on a thread, where a timeout ends the job's
        run but cannot stop the function (check ``ctx.remaining_s``). The return value is the result, unless
        it is an outcome.

        Args:
            kind: Default the function's name, so that renaming it makes another kind.
            queue, priority, group: Defaults for its jobs; *group* may be a function of the args.
            timeout_s: Bounds a run. Default 60.
            retry: A RetryPolicy, or how often a transient failure or an error of the handler is retried.
                Default: by its category.
            transient: Your exceptions that may pass by themselves, ``transient=(VendorBusy,)``. Others are
                errors of the handler, retried 3 times.

        Raises:
            InvalidConfigError, InvalidInputError: A value is not valid, the kind is taken, or the Fairlead is open.
        """

        def register(function: Function[P, R]) -> JobFunction[P, R]:
            name = kind if isinstance(kind, str) else getattr(function, "__name__", "")
            self._check_free(name)
            declaration = Declaration(
                kind=name,
                queue=queue,
                retry=retry_policy(name, retry),
                timeout_s=timeout_s,
                priority=parse_priority(priority),
                group=group,
                transient=transient,
            )
            made = JobFunction(
                function, declaration, store=self._store_requests, threads=self._handler_threads
            )
            self._functions[name] = made
            return made

        return register(kind) if callable(kind) else register

    def _check_free(self, kind: str) -> None:
        if kind in self._functions or is_internal_kind(kind):
            raise InvalidConfigError(f"kind {kind!r} is taken", hint="choose another name")
        self._check_in_time(f"kind {kind!r}")

    # ---- schedules -----------------------------------------------------------------------------

    def schedule(  # noqa: PLR0913 - a user names what they have
        self,
        name: str,
        expression: str,
        kind: str | JobFunction[..., Any],
        *,
        tenant: str = SYSTEM_TENANT,
        args: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
        missed: Missed = "coalesce",
        jitter_s: float = 0.0,
        queue: str | None = None,
        priority: str | int | None = None,
        paused: bool = False,
    ) -> None:
        """Have a job of *kind* at each tick of *expression*, once across the fleet.

        *expression*: five cron fields in *timezone* (default UTC), ``@daily`` and the like, or ``@every
        90s``. *missed*: what was missed is made up by one job (``coalesce``, default: and a job that has not
        ended stands for the next tick, too), or by one each (``catch_up``). *jitter_s*: a job is due up to so
        much later, never past the next tick (default 0). *tenant*: default fairlead's own. *queue*,
        *priority*: default as the kind declares. *paused*: switched off here, whatever people do.

        It is written when a process begins to ``run``; one that is declared no more stays until
        `fairlead schedules remove`. Raises InvalidInputError for what cannot be, InvalidConfigError for a name
        that is taken and where the Fairlead is open.
        """
        self._check_in_time(f"schedule {name!r}")
        if name in self._schedules:
            raise InvalidConfigError(f"schedule {name!r} is taken", hint="name one of them otherwise")
        known = kind if isinstance(kind, JobFunction) else self._functions.get(kind)
        level = priority if priority is not None else known.priority if known else "normal"
        given = checked_args({} if args is None else args, tenant=tenant)
        made = Schedule(
            name=name,
            expression=expression,
            kind=kind.kind if isinstance(kind, JobFunction) else kind,
            tenant_id=tenant,
            timezone=timezone,
            missed=missed,
            queue=queue if queue is not None else known.queue if known else "default",
            priority=int(parse_priority(level)),
            args=known.stored_args(given, tenant=tenant) if known else given,
            jitter_s=jitter_s,
            paused=paused,
        )
        check_schedule(made)
        self._schedules[name] = made

    def cron(
        self,
        expression: str,
        *,
        name: str | None = None,
        tenant: str = SYSTEM_TENANT,
        args: Mapping[str, Any] | None = None,
        timezone: str = "UTC",
        missed: Missed = "coalesce",
        jitter_s: float = 0.0,
        paused: bool = False,
    ) -> Callable[[Function[P, R] | JobFunction[P, R]], JobFunction[P, R]]:
        """Run the decorated function at each tick: ``@fl.cron("0 3 * * *", timezone="Europe/Madrid")``.

        It becomes a job as by ``@fl.job``; put that below for a kind, queue, timeout or retry of its own.
        *name* of the schedule: default the kind. The rest is explained at `schedule`.
        """

        def register(function: Function[P, R] | JobFunction[P, R]) -> JobFunction[P, R]:
            made = function if isinstance(function, JobFunction) else self.job(function)
            self.schedule(
                name or made.kind,
                expression,
                made,
                tenant=tenant,
                args=args,
                timezone=timezone,
                missed=missed,
                jitter_s=jitter_s,
                paused=paused,
            )
            return made

        return register

    # ---- what was declared ---------------------------------------------------------------------

    @property
    def handlers(self) -> list[Handler]:
        """The handlers declared so far."""
        on_error = self._call_error_hooks if self._error_hooks else None
        return [replace(function.handler, on_error=on_error) for function in self._functions.values()]

    def _call_error_hooks(self, error: Exception, context: JobContext) -> None:
        broken: Exception | None = None
        for hook in self._error_hooks:
            try:
                hook(error, context)
            except Exception as raised:  # noqa: BLE001 (the other hooks are called all the same)
                broken = broken or raised
        if broken is not None:
            raise broken

    @property
    def schedules(self) -> list[Schedule]:
        """The schedules declared so far."""
        return list(self._schedules.values())

    def _handler_threads(self) -> Threads:
        assert self._threads is not None  # handlers run only while it is open
        return self._threads

    @abstractmethod
    def _check_in_time(self, what: str) -> None:
        """InvalidConfigError where it is too late to declare *what*."""

    @abstractmethod
    async def _store_requests(
        self, requests: Iterable[JobRequest], transaction: object | None
    ) -> list[EnqueuedJob]:
        """Store jobs, in the caller's *transaction* if there is one; their ids."""
