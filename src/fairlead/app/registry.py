"""The declarations of a program before it opens its Fairlead: jobs, schedules and subscribers of events."""

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
    """The declarations of one Fairlead; nothing is global."""

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
            names = ", ".join(sorted(SUBSCRIBABLE_EVENTS))
            raise InvalidConfigError(f"there is no event {event!r} to subscribe to", hint=f"one of: {names}")

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
            InvalidConfigError, InvalidInputError: A value is not valid, the kind is taken, or the Fairlead is
                open.
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
            job_function = JobFunction(
                function, declaration, store=self._store_requests, threads=self._handler_threads
            )
            self._functions[name] = job_function
            return job_function

        return register(kind) if callable(kind) else register

    def _check_free(self, kind: str) -> None:
        if kind in self._functions or is_internal_kind(kind):
            raise InvalidConfigError(f"kind {kind!r} is already declared", hint="choose another name")
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
        """Enqueue a job of *kind* at each time of *expression*, once across the fleet.

        The schedule is stored when a process starts to ``run``. One that is no longer declared stays until
        `fairlead schedules remove`.

        Args:
            name: The name of the schedule.
            expression: Five cron fields, ``@daily`` and the like, or ``@every 90s``.
            kind: The kind of its jobs.
            tenant: Default: fairlead's own tenant.
            args: The args of its jobs.
            timezone: The time zone of *expression*. Default UTC.
            missed: ``coalesce`` (default): one job stands for all missed runs, and a job that has not ended
                stands for the next run, too. ``catch_up``: one job for each missed run.
            jitter_s: The most by which a job is delayed, never past the next run. Default 0.
            queue: Default: as the kind declares.
            priority: Default: as the kind declares.
            paused: Do not fire it, whatever operators do.

        Raises:
            InvalidInputError: A value is not valid.
            InvalidConfigError: The name is taken, or the Fairlead is open.
        """
        self._check_in_time(f"schedule {name!r}")
        if name in self._schedules:
            raise InvalidConfigError(f"schedule {name!r} is taken", hint="give one of them another name")
        declared = kind if isinstance(kind, JobFunction) else self._functions.get(kind)
        level = priority if priority is not None else declared.priority if declared else "normal"
        checked = checked_args({} if args is None else args, tenant=tenant)
        schedule = Schedule(
            name=name,
            expression=expression,
            kind=kind.kind if isinstance(kind, JobFunction) else kind,
            tenant_id=tenant,
            timezone=timezone,
            missed=missed,
            queue=queue if queue is not None else declared.queue if declared else "default",
            priority=int(parse_priority(level)),
            args=declared.stored_args(checked, tenant=tenant) if declared else checked,
            jitter_s=jitter_s,
            paused=paused,
        )
        check_schedule(schedule)
        self._schedules[name] = schedule

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
        """Run the decorated function at each time: ``@fl.cron("0 3 * * *", timezone="Europe/Madrid")``.

        It becomes a job as with ``@fl.job``; put that below for a kind, queue, timeout or retry of its own.
        The default *name* of the schedule is the kind. For the other options see `schedule`.
        """

        def register(function: Function[P, R] | JobFunction[P, R]) -> JobFunction[P, R]:
            job_function = function if isinstance(function, JobFunction) else self.job(function)
            self.schedule(
                name or job_function.kind,
                expression,
                job_function,
                tenant=tenant,
                args=args,
                timezone=timezone,
                missed=missed,
                jitter_s=jitter_s,
                paused=paused,
            )
            return job_function

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
            except Exception as raised:  # noqa: BLE001 (the other hooks are still called)
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
    def _check_in_time(self, declaration: str) -> None:
        """Raise InvalidConfigError if it is too late for *declaration*."""

    @abstractmethod
    async def _store_requests(
        self, requests: Iterable[JobRequest], transaction: object | None
    ) -> list[EnqueuedJob]:
        """Store jobs, in the caller's *transaction* if there is one, and return their ids."""
