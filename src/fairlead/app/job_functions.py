"""Handlers as `fl.job` returns them: callable as before, and with methods that enqueue jobs of their kind."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from pydantic import ConfigDict, TypeAdapter

from fairlead.app.enqueued import EnqueuedJob
from fairlead.app.job_requests import GroupOf, JobOptions, JobRequest
from fairlead.app.json_form import json_form
from fairlead.app.signature import Signature
from fairlead.app.threads import Threads
from fairlead.engine.jobs.handler import JOB_TIMEOUT_S, Handler, JobContext
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.failures.category import RETRIED
from fairlead.policy.failures.retry import DEFAULT_POLICY, DEFAULT_RULES, MAX_ATTEMPTS, RetryPolicy
from fairlead.policy.jobs.job import MAX_GROUP_KEY_BYTES, Outcome, Priority
from fairlead.policy.text.names import check_label, check_name, shown
from fairlead.policy.text.safe import unstorable

P = ParamSpec("P")
R = TypeVar("R")

_AS_JSON = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants")).dump_python

OPTIONS = frozenset(JobOptions.__annotations__)
NOT_ARGS = OPTIONS | {"tenant", "transaction"}
"""Parameters of `enqueue`: no parameter of a handler may have such a name."""

_ALIKE = 0.8
"""How similar (0 to 1) a misspelt option is: `delay` is similar to one, `key` is not."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The options that a kind declares for all its jobs."""

    kind: str
    queue: str = "default"
    retry: RetryPolicy = DEFAULT_POLICY
    timeout_s: float = JOB_TIMEOUT_S
    priority: Priority = Priority.NORMAL
    group: str | GroupOf | None = None
    transient: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        check_name("kind", self.kind)
        check_name("queue", self.queue)
        named: object = self.transient
        if not isinstance(named, tuple) or not all(map(_is_exception, named)):
            hint = "give a tuple of exception classes: transient=(VendorBusy,)"
            raise InvalidConfigError(f"transient={named!r} of kind {self.kind!r} is not valid", hint=hint)
        if isinstance(self.group, str) and self.group:
            check_label("group", self.group, MAX_GROUP_KEY_BYTES)


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


Store = Callable[[Iterable[JobRequest], object | None], Awaitable[list[EnqueuedJob]]]
"""Stores jobs, in the caller's transaction if there is one, and returns their ids in order."""


class JobFunction(Generic[P, R]):
    """A handler, as `@fl.job` returns it. Calling it calls the decorated function."""

    def __init__(
        self,
        function: Callable[Concatenate[JobContext, P], R],
        declaration: Declaration,
        *,
        store: Store,
        threads: Callable[[], Threads],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._declaration = declaration
        self._store = store
        self._threads = threads
        self._signature = Signature(declaration.kind, function)
        run = self._run if inspect.iscoroutinefunction(function) else self._run_on_thread
        self.handler = Handler(
            declaration.kind,
            run,
            declaration.timeout_s,
            declaration.retry,
            declaration.queue,
            declaration.transient,
        )
        """The handler for workers."""
        _check_function(declaration.kind, function)

    def __call__(self, ctx: JobContext, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no job is stored."""
        return self._function(ctx, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.kind!r}: {getattr(self._function, '__qualname__', self._function)}>"

    # ---- what it declares ----------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """The kind of job that it runs."""
        return self._declaration.kind

    @property
    def queue(self) -> str:
        """The queue of its jobs, unless enqueue names another."""
        return self._declaration.queue

    @property
    def priority(self) -> Priority:
        """The priority of its jobs, unless enqueue names another."""
        return self._declaration.priority

    @property
    def group(self) -> str | GroupOf | None:
        """The group of its jobs, unless enqueue names another."""
        return self._declaration.group

    def stored_args(self, args: Mapping[str, Any], *, tenant: str | None = None) -> dict[str, Any]:
        """Return *args* as they are stored.

        Raises:
            InvalidInputError: The handler could not take them.
        """
        return self._signature.of_args(args, tenant=tenant)

    # ---- jobs of this kind ---------------------------------------------------------------------

    async def enqueue(
        self, *args: Any, tenant: str, transaction: object | None = None, **kwargs: Any
    ) -> EnqueuedJob:
        """Store one job, with the handler's parameters and `JobOptions` side by side.

        ``await send.enqueue(order_id=42, tenant="acme", delay_s=60)`` returns the id of the job, or of the open
        job with the same unique key. A type checker knows the parameters in
        ``send.for_tenant("acme").enqueue(...)``.

        Raises:
            InvalidInputError: A field or an arg is not valid; nothing is stored.
        """
        options: dict[str, Any] = {name: kwargs.pop(name) for name in OPTIONS & kwargs.keys()}
        if unknown := kwargs.keys() - self._signature.names:
            _refuse_misspelt(unknown, self.kind, tenant)
        request = JobRequest(self.kind, self._args(args, kwargs, tenant), tenant=tenant, **options)
        (job_id,) = await self._store([request], transaction)
        return job_id

    async def enqueue_many(
        self,
        many: Iterable[Mapping[str, Any]],
        *,
        tenant: str,
        transaction: object | None = None,
        **options: Unpack[JobOptions],
    ) -> list[EnqueuedJob]:
        """Store a job for each args of *many*, in one statement, all with the same options.

        Return their ids in order. Bounds and errors are those of `Fairlead.enqueue_many`.
        """
        requests = (JobRequest(self.kind, args, tenant=tenant, **options) for args in many)
        return await self._store(requests, transaction)

    def for_tenant(
        self, tenant: str, *, transaction: object | None = None, **options: Unpack[JobOptions]
    ) -> BoundJob[P]:
        """Return these jobs bound to *tenant* and options, so that only the handler's parameters remain."""
        request = JobRequest(self.kind, tenant=tenant, **options)
        return BoundJob(self._store, request, self._args, transaction)

    def _args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        return self._signature.of_call(args, kwargs, tenant=tenant)

    # ---- a run: args read and checked, results made JSON ---------------------------------------

    async def _run(self, context: JobContext) -> object:
        args, kwargs = self._signature.call_for(context.args, tenant=context.tenant)
        function: Callable[..., Any] = self._function
        return _plain(await function(context, *args, **kwargs))

    async def _run_on_thread(self, context: JobContext) -> object:
        args, kwargs = self._signature.call_for(context.args, tenant=context.tenant)
        function: Callable[..., Any] = self._function
        result = await self._threads().run(functools.partial(function, context, *args, **kwargs))
        # it may return the coroutine of an async function
        return _plain(await result if inspect.isawaitable(result) else result)


class BoundJob(Generic[P]):
    """Jobs of one kind, bound to a tenant and options."""

    def __init__(
        self,
        store: Store,
        request: JobRequest,
        args_of: Callable[[tuple[Any, ...], Mapping[str, Any], str], dict[str, Any]],
        transaction: object | None,
    ) -> None:
        self._store = store
        self._request = request
        self._args_of = args_of
        self._transaction = transaction

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> EnqueuedJob:
        """Store one job and return its id, or that of the open job with the same unique key."""
        (job_id,) = await self._store([self._filled(args, kwargs)], self._transaction)
        return job_id

    def request(self, *args: P.args, **kwargs: P.kwargs) -> JobRequest:
        """Return the job as a value for `Fairlead.enqueue_many`, which takes the transaction."""
        if self._transaction is not None:
            hint = "give it to enqueue_many, for all of them"
            raise InvalidInputError("a request has no transaction of its own", hint=hint)
        return self._filled(args, kwargs)

    def _filled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> JobRequest:
        return replace(self._request, args=self._args_of(args, kwargs, self._request.tenant))


def _refuse_misspelt(names: Iterable[str], kind: str, tenant: str) -> None:
    """Raise InvalidInputError if a name that the handler does not declare is nearly an option of `enqueue`.

    A handler that reads `ctx.args`, or a model that ignores other fields, would accept it without a word.
    """
    for name in names:
        if option := _nearest_option(name):
            message = f"{shown(name)} is neither an option of enqueue nor a parameter of kind {kind!r}"
            hint = f"did you mean {option}? An arg of that name has to be a parameter of the handler"
            raise InvalidInputError(message, tenant=tenant, hint=hint)


@functools.lru_cache(
    maxsize=1_000
)  # a handler of the context alone declares no names, so each enqueue calls this
def _nearest_option(name: str) -> str | None:
    near = get_close_matches(name, NOT_ARGS, n=1, cutoff=_ALIKE)
    return near[0] if near else None


def retry_policy(kind: str, retry: RetryPolicy | int | None) -> RetryPolicy:
    """Return the policy for *retry* of `fl.job`, in which a number is how often a failure is retried."""
    if retry is None:
        return DEFAULT_POLICY
    if isinstance(retry, RetryPolicy):
        return retry
    if type(retry) is not int or not 0 <= retry < MAX_ATTEMPTS:  # no bool either
        hint = f"give 0 to {MAX_ATTEMPTS - 1} tries after the first, or a RetryPolicy"
        raise InvalidConfigError(f"{retry!r} is no retry for kind {kind!r}", hint=hint)
    rules = {category: replace(DEFAULT_RULES[category], attempts=retry) for category in RETRIED}
    return RetryPolicy({**DEFAULT_RULES, **rules}, ceiling=retry + 1)


def _check_function(kind: str, function: Callable[..., object]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        hint = "return a result; to report progress, enqueue further jobs"
        raise InvalidConfigError(f"the handler of kind {kind!r} yields", hint=hint)
    reserved = sorted(NOT_ARGS & set(list(inspect.signature(function).parameters)[1:]))
    if reserved:
        hint = "rename it; the context has tenant and provider, and one model parameter may hold any names"
        raise InvalidConfigError(
            f"parameter {reserved[0]!r} of kind {kind!r} is a word of enqueue", hint=hint
        )


def _plain(result: object) -> object:
    """Return models, dataclasses and dates as JSON values; the executor handles other objects."""
    if result is None or isinstance(result, str | int | float | Outcome):
        return result
    try:
        return json_form(lambda mode: _AS_JSON(result, mode=mode, fallback=unstorable))
    except Exception:  # noqa: BLE001 (a result may be any object, and any of its methods may raise)
        return result
