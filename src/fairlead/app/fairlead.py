"""`Fairlead`: declares jobs, stores them, hands out tokens, and works."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack
from uuid import UUID

from fairlead._core import forks
from fairlead.app.client import Client
from fairlead.app.connections import ConnectionsAPI
from fairlead.app.enqueued import EnqueuedJob
from fairlead.app.job_functions import JobFunction
from fairlead.app.job_requests import JobOptions, JobRequest, new_jobs
from fairlead.app.job_results import result_of
from fairlead.app.registry import JobRegistry
from fairlead.app.stores import Stores
from fairlead.app.sync import SyncFairlead
from fairlead.app.threads import Threads
from fairlead.assembly.config import Config, load
from fairlead.assembly.offline import OfflineServices, offline_services
from fairlead.assembly.providers import ProfileRegistry
from fairlead.assembly.runtime import Roles, Runtime
from fairlead.engine.limits.admission import Admission
from fairlead.engine.limits.bulk_slots import BulkOperation, BulkRequest
from fairlead.engine.limits.call_admitter import CallRequest
from fairlead.engine.ports import CallerJobs, ConnectionKey, NewJob
from fairlead.errors import FairleadError, InvalidConfigError, InvalidInputError
from fairlead.policy.jobs.job import check_delay
from fairlead.policy.text.names import shown
from fairlead.policy.text.safe import safe_text
from fairlead.policy.tokens.token import PublicToken

_log = logging.getLogger("fairlead.assembly.config")


class Fairlead(JobRegistry):
    """fairlead inside your program. Declare jobs on it, then use it with ``async with``.

    *include* names modules that are imported when it is opened: those with your handlers, where they import
    this object themselves and `fairlead run --app` would not come by them.
    """

    def __init__(self, config: Config, *, include: Sequence[str] = ()) -> None:
        super().__init__()
        self._config = config
        self._include = include
        self._runtime: Runtime | None = None
        self._memory: Stores | None = None
        self.connections = ConnectionsAPI(lambda: self.runtime)

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        config: Path | str | None = None,
        include: Sequence[str] = (),
    ) -> Fairlead:
        """Settings from *environ* (default: this process's) and a file; InvalidConfigError names all problems.

        Nothing is connected before it is opened.
        """
        loaded = load(os.environ if environ is None else environ, config)
        if loaded.warning:
            _log.warning(loaded.warning)
        return cls(loaded, include=include)

    # ---- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Fairlead:
        if self._runtime is not None or self._memory is not None:
            raise InvalidConfigError("this Fairlead is open already", hint="open it once, and share it")
        self.load_modules()
        self._threads = Threads()
        self._runtime = await Runtime.open(self._config, self.handlers, self._subscribers, self.schedules)
        forks.forget_in_children(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runtime, self._runtime = self._runtime, None
        forks.closed(self)
        try:
            if runtime is not None:
                await runtime.close()
        finally:
            self._let_threads_go()

    def forked(self) -> object:
        """Close this in a forked child, which may open it again; return what is open in the parent."""
        left, self._runtime, self._threads = (self._runtime, self._threads), None, None
        return left

    async def run(self, roles: Roles | None = None) -> None:
        """Work until ``stop``: schedules, workers, rescue (default all). Other calls go on beside it."""
        await self.runtime.run(roles or Roles())

    def stop(self) -> None:
        """End ``run``: claim no more, let jobs end within the grace, hand the rest back. Twice: at once."""
        self.runtime.stop()

    @property
    def runtime(self) -> Runtime:
        """What is running; InvalidConfigError outside of ``async with``, and in memory, where nothing is."""
        if self._memory is not None:
            what = "a MemoryFairlead has jobs in memory, no calls, connections or limits"
            hint = "test these on a database and Redis, against fairlead.testing.api, or hand in a fake"
            raise InvalidConfigError(what, hint=hint)
        if self._runtime is None:
            raise InvalidConfigError("this Fairlead is not open", hint="use it inside `async with`")
        return self._runtime

    @cached_property
    def sync(self) -> SyncFairlead:
        """The same for code without asyncio (Django, Celery): tokens, enqueue and results."""
        return SyncFairlead(self, self._twin)

    # ---- tokens --------------------------------------------------------------------------------

    async def token(self, tenant: str, provider: str, account: str = "default") -> PublicToken:
        """A token that is valid now, refreshed if need be.

        Raises NotFoundError, ReauthRequiredError (send the customer the link), or a Refused with ``retry_after_s``.
        """
        return await self._stores.reader.token(ConnectionKey(tenant, provider, account))

    async def refresh(
        self, tenant: str, provider: str, account: str = "default", *, newer_than: int | None = None
    ) -> PublicToken:
        """A token newer than *newer_than* (``token.generation`` after a 401); one POST however many ask.

        Without it, one that lasts for more than a minute will do, and is refreshed only otherwise.
        """
        if newer_than is not None and type(newer_than) is not int:  # no bool either
            hint = "give the generation of the token that was refused: newer_than=token.generation"
            what = f"newer_than is {shown(newer_than)}, not a number"
            raise InvalidInputError(what, tenant=tenant, provider=provider, hint=hint)
        return await self._stores.reader.refreshed_after(ConnectionKey(tenant, provider, account), newer_than)

    # ---- calls ---------------------------------------------------------------------------------

    def client(self, tenant: str, provider: str, account: str = "default") -> Client:
        """Calls through a connection: token, limits, retries and deadline are taken care of.

            async with fl.client("acme", "shopify") as api:
                orders = (await api.get("/orders.json")).json()["orders"]

        See `Client`. NotFoundError, when it is entered, where there is no such connection.
        """
        runtime = self.runtime
        key = ConnectionKey(tenant, provider, account)
        return Client(key, runtime.calls.pipeline, runtime.profiles.profile, runtime.calls.bulks)

    def admission(
        self,
        tenant: str,
        provider: str,
        account: str = "default",
        *,
        api: str | None = None,
        cost: float | None = None,
        operation: str = "",
        wait_s: float | None = None,
        host: str = "",
        retry: bool | None = None,
    ) -> AbstractAsyncContextManager[Admission]:
        """Leave to make one call within every limit of a connection, for as long as the block lasts.

            async with fl.admission("acme", "shopify", api="graphql", cost=52) as admission:
                response = await ...
                admission.record_response(RawResponse(response.status, headers, body))

        *api*: which of the provider's APIs (default its usual one). *cost*: units of its limit (default: as
        the answers to calls of this *operation* told before, at first 1). *wait_s*: how long it may wait
        here, default the connection's `inline_wait_s`, 2. *retry*: whether the call was tried before
        (default: as the job was, of which it is a part); at most a fifth of a connection's calls in flight
        are retries, but three always may be.
        Raises LimitExceededError with ``retry_after_s``; a job that lets it pass goes back into its place until its
        turn, and burns no attempt. SlotLostError ends a block whose slot was lost. NotFoundError where there is no
        such connection, InvalidInputError for a *cost* or *wait_s* that is none, such as one below 0.
        """
        key = ConnectionKey(tenant, provider, account)
        wish = CallRequest(key, api, host, cost, None, wait_s, retry=retry, operation=operation)
        return self.runtime.gate.call_admitter.enter(wish)

    def bulk(
        self,
        tenant: str,
        provider: str,
        account: str = "default",
        *,
        kind: str = "query",
        api_version: str | None = None,
        token: str | None = None,
        wait_s: float = 0.0,
    ) -> AbstractAsyncContextManager[BulkOperation]:
        """A place among the bulk operations that a connection may run at once; it outlives the block.

            async with fl.bulk("acme", "shopify", kind="query") as operation:
                ...  # start it at the vendor
                if operation.rejection_code(reply):  # one runs that we do not know of: look after that one
                    operation.adopt(its_id)
                else:
                    operation.started(its_id)
                await fl.enqueue("bulk.poll", {"token": operation.token}, tenant="acme", provider="shopify")

            async with fl.bulk("acme", "shopify", kind="query", token=token) as operation:
                ...  # ask the vendor how operation.running_id is doing, and once it has ended:
                operation.finished()

        A block that ends without `started` or `adopt` gives its place back. Else it stays taken until some
        block says `finished`, or for 10 minutes after the last block (`lease_s` in the profile). *api_version*:
        default the profile's; it decides how many run at once, and whether each *kind* is counted for itself.
        *wait_s*: how long it may wait here, default 0.

        Raises BulkLimitReachedError where all places are taken: a job that lets it pass comes back in 30 s and burns no
        attempt. SlotLostError where the place of *token* has passed on, or is lost within the block. InvalidInputError
        for a kind that the provider does not have, NotFoundError where there is no such connection.
        """
        check_delay("a place among the bulk operations", wait_s, tenant=tenant)
        wish = BulkRequest(ConnectionKey(tenant, provider, account), kind, api_version, token, wait_s)
        return self.runtime.gate.bulks.enter(wish)

    # ---- storing jobs --------------------------------------------------------------------------

    async def enqueue(
        self,
        kind: str | JobFunction[..., Any],
        args: Mapping[str, Any] | None = None,
        *,
        tenant: str,
        transaction: object | None = None,
        **options: Unpack[JobOptions],
    ) -> EnqueuedJob:
        """Store one job; return its id, or that of the waiting job with the same ``unique_key``.

        The id is a UUID whose ``met`` says what the key met; see `EnqueuedJob`.

        Args:
            options: See `JobOptions`.
            transaction: An asyncpg connection or a psycopg AsyncConnection on fairlead's database, in a
                transaction of yours. The job exists if that commits, and the next poll of a worker finds it.

        Raises:
            InvalidInputError: A field is not valid, or the handler could not take the args.
            Refused: The queue has too many dead letters of this kind.
        """
        request = JobRequest(_kind(kind), {} if args is None else args, tenant=tenant, **options)
        (job_id,) = await self.enqueue_many([request], transaction=transaction)
        return job_id

    async def enqueue_many(
        self, requests: Iterable[JobRequest], *, transaction: object | None = None
    ) -> list[EnqueuedJob]:
        """Store jobs, all or none; return their ids in order. At most 10,000 jobs and 32 MiB of args.

        See `enqueue`. *requests* may be a generator; it is read to its end before the first job is stored.
        """
        jobs = new_jobs(self._spelled(requests), self._functions.get, self._outside.ids.uuid7)
        if transaction is None:
            stored = await self._stores.jobs.enqueue(jobs)
        else:
            stored = await self.callers.store(transaction, list(jobs))
        return [EnqueuedJob(each.job_id, each.met) for each in stored]

    async def result(self, job_id: UUID, *, timeout_s: float = 0.0) -> Any:
        """What a job returned, waiting up to *timeout_s* seconds (default 0) for its end by looking again.

        Raises NotFoundError (none of this id; completed jobs are kept for 24 h), JobFailedError where it was cancelled
        or discarded, JobNotFinishedError where it has not ended. That one is a Refused: a handler that lets it pass
        is snoozed and asks again, which is the way to wait for another job without keeping a worker.
        """
        stores = self._stores
        return await result_of(stores.jobs, stores.clock, job_id, timeout_s)

    # ---- for the other doors -------------------------------------------------------------------

    def new_jobs(self, requests: Iterable[JobRequest]) -> list[NewJob]:
        """*requests* checked and filled up, as stores take them."""
        return list(new_jobs(self._spelled(requests), self._functions.get, self._outside.ids.uuid7))

    def _spelled(self, requests: Iterable[JobRequest]) -> Iterator[JobRequest]:
        """Yield *requests*; raise InvalidInputError for a provider that is nearly the name of a known one."""
        checked: set[str | None] = {None}
        for request in requests:
            provider = getattr(request, "provider", None)
            if provider not in checked and isinstance(provider, str):
                self._profiles.refuse_misspelt(provider, tenant=request.tenant)
                checked.add(provider)
            yield request

    @property
    def callers(self) -> CallerJobs:
        """How jobs are stored through connections that are not ours; it needs no open Fairlead."""
        return self._outside.callers

    @property
    def in_memory(self) -> bool:
        """Whether a test has put stores in memory in the place of the real ones."""
        return self._memory is not None

    def _use_memory_stores(self, memory: Stores | None) -> None:
        """For `fairlead.testing`: let everything happen on these stores; None: no more."""
        if memory is not None and (self._runtime is not None or self._memory is not None):
            raise InvalidConfigError("this Fairlead is open already", hint="open it once, and share it")
        self._memory = memory
        self._let_threads_go()
        if memory is not None:
            self.load_modules()
            self._threads = Threads()

    @property
    def _stores(self) -> Stores:
        return self._memory or self.runtime

    @property
    def _outside(self) -> Stores | OfflineServices:
        return self._memory or self._runtime or self._without_runtime

    @cached_property
    def _profiles(self) -> ProfileRegistry:
        return self._runtime.profiles if self._runtime else ProfileRegistry(self._config.settings)

    @cached_property
    def _without_runtime(self) -> OfflineServices:
        return offline_services(self._config.settings)

    def _check_in_time(self, what: str) -> None:
        if self._runtime is not None or self._memory is not None:
            hint = "declare it before; name its module in include=[...] of the Fairlead"
            raise InvalidConfigError(f"{what} comes too late: this Fairlead is open", hint=hint)

    async def _store_requests(
        self, requests: Iterable[JobRequest], transaction: object | None
    ) -> list[EnqueuedJob]:
        return await self.enqueue_many(requests, transaction=transaction)

    def _let_threads_go(self) -> None:
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def load_modules(self) -> None:
        """Import what *include* names, and the module of a KMS hook."""
        if hook := self._config.settings.vault.kms:
            with suppress(Exception):  # opening reports what is wrong with it
                import_module(hook.partition(":")[0])
        for name in self._include:
            try:
                import_module(name)
            except FairleadError:
                raise
            except Exception as error:
                told = (
                    f"include {name!r} cannot be imported ({type(error).__name__}: {safe_text(str(error))})"
                )
                raise InvalidConfigError(told, hint="name modules as `import` does") from error

    def _twin(self) -> Fairlead:
        """Another one of the same settings and declarations, to be opened on another event loop."""
        twin = Fairlead(self._config)  # on another thread: the caller has imported the modules of *include*
        twin._functions, twin._schedules = self._functions, self._schedules
        twin._subscribers = self._subscribers
        return twin


def _kind(kind: str | JobFunction[..., Any]) -> str:
    return kind.kind if isinstance(kind, JobFunction) else kind
