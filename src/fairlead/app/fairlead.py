"""The public API: tokens, calls, limits and jobs of one Fairlead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any, Unpack
from uuid import UUID

from fairlead.app.client import Client
from fairlead.app.connections import ConnectionsAPI
from fairlead.app.enqueued import EnqueuedJob
from fairlead.app.job_functions import JobFunction
from fairlead.app.job_requests import JobOptions, JobRequest, new_jobs
from fairlead.app.job_results import result_of
from fairlead.app.lifecycle import Lifecycle
from fairlead.app.sync import SyncFairlead
from fairlead.engine.limits.admission import Admission, CallRequest
from fairlead.engine.limits.bulk_slots import BulkOperation, BulkRequest
from fairlead.engine.ports import CallerJobs, ConnectionKey, NewJob
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.job import check_delay
from fairlead.policy.text.names import shown
from fairlead.policy.tokens.token import PublicToken


class Fairlead(Lifecycle):
    """fairlead inside your program. Declare jobs on it, then use it with ``async with``.

    Args:
        include: Modules to import when it is opened, such as those with your handlers that `fairlead run
            --app` does not import.
    """

    @cached_property
    def connections(self) -> ConnectionsAPI:
        """The connections: add, list, change, revoke and remove them."""
        return ConnectionsAPI(lambda: self.runtime)

    @cached_property
    def sync(self) -> SyncFairlead:
        """The same for code without asyncio (Django, Celery): tokens, enqueue and results."""
        return SyncFairlead(self, self._twin)

    # ---- tokens --------------------------------------------------------------------------------

    async def token(self, tenant: str, provider: str, account: str = "default") -> PublicToken:
        """Return a token that is valid now, after a refresh if necessary.

        Raises:
            NotFoundError: There is no such connection.
            ReauthRequiredError: The customer must authorise again; send them the link.
            Refused: Try again after ``retry_after_s``.
        """
        return await self._stores.reader.token(ConnectionKey(tenant, provider, account))

    async def refresh(
        self, tenant: str, provider: str, account: str = "default", *, newer_than: int | None = None
    ) -> PublicToken:
        """Return a token newer than *newer_than*, for example after a 401.

        Concurrent calls share one request. Without *newer_than* a token that is valid for more than a minute
        is returned, else it is refreshed.

        Args:
            newer_than: The ``token.generation`` that was refused.
        """
        if newer_than is not None and type(newer_than) is not int:  # no bool either
            hint = "give the generation of the token that was refused: newer_than=token.generation"
            message = f"newer_than is {shown(newer_than)}, not a number"
            raise InvalidInputError(message, tenant=tenant, provider=provider, hint=hint)
        return await self._stores.reader.refreshed_after(ConnectionKey(tenant, provider, account), newer_than)

    # ---- calls ---------------------------------------------------------------------------------

    def client(self, tenant: str, provider: str, account: str = "default") -> Client:
        """Return a client for calls through a connection, with token, limits, retries and deadline.

            async with fl.client("acme", "shopify") as api:
                orders = (await api.get("/orders.json")).json()["orders"]

        Entering it raises NotFoundError if there is no such connection. See `Client`.
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
        """Return a context in which you may make one call within every limit of a connection.

            async with fl.admission("acme", "shopify", api="graphql", cost=52) as admission:
                response = await ...
                admission.record_response(RawResponse(response.status, headers, body))

        Args:
            api: The provider's API. Default: its usual one.
            cost: Units of its limit. Default: the cost that earlier responses to this *operation* reported,
                at first 1.
            operation: A name for calls of the same cost.
            wait_s: The longest wait. Default: the connection's `inline_wait_s`, 2.
            host: The destination, for its breaker.
            retry: Whether this call is a retry. Default: as its job is. At most a fifth of a connection's
                calls in flight are retries, but three always may be.

        Raises:
            LimitExceededError: Try again after ``retry_after_s``. A job that lets it pass returns to its
                place until then, without using up an attempt.
            SlotLostError: The slot was lost within the block.
            NotFoundError: There is no such connection.
            InvalidInputError: *cost* or *wait_s* is not valid.
        """
        key = ConnectionKey(tenant, provider, account)
        request = CallRequest(key, api, host, cost, None, wait_s, retry=retry, operation=operation)
        return self.runtime.gate.call_admitter.enter(request)

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
        """Return a context for one of the bulk operations that a connection may run at once.

        The slot outlives the block:

            async with fl.bulk("acme", "shopify", kind="query") as operation:
                ...  # start it at the provider
                if operation.rejection_code(reply):  # an unknown one is running: adopt it
                    operation.adopt(its_id)
                else:
                    operation.started(its_id)
                await fl.enqueue("bulk.poll", {"token": operation.token}, tenant="acme", provider="shopify")

            async with fl.bulk("acme", "shopify", kind="query", token=token) as operation:
                ...  # ask the provider for the state of operation.running_id, and once it has ended:
                operation.finished()

        A block that ends without `started` or `adopt` releases its slot. Else the slot is held until a block
        calls `finished`, or for 10 minutes after the last block (`lease_s` in the profile).

        Args:
            kind: The kind of operation.
            api_version: Decides how many may run at once, and whether each *kind* is counted by itself.
                Default: the profile's.
            token: The token of a slot that an earlier block acquired.
            wait_s: The longest wait. Default 0.

        Raises:
            BulkLimitReachedError: All slots are taken. A job that lets it pass runs again in 30 s without
                using up an attempt.
            SlotLostError: The slot of *token* was lost.
            InvalidInputError: The provider has no such kind.
            NotFoundError: There is no such connection.
        """
        check_delay("a place among the bulk operations", wait_s, tenant=tenant)
        request = BulkRequest(ConnectionKey(tenant, provider, account), kind, api_version, token, wait_s)
        return self.runtime.gate.bulks.enter(request)

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

        The id is a UUID with an attribute ``key_state``, the state of the job that has the key; see
        `EnqueuedJob`.

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
        return [EnqueuedJob(job.job_id, job.key_state) for job in stored]

    async def result(self, job_id: UUID, *, timeout_s: float = 0.0) -> Any:
        """Return the result of a job, waiting up to *timeout_s* seconds (default 0) for its end.

        Raises:
            NotFoundError: There is no such job; completed jobs are stored for 24 h.
            JobFailedError: It was cancelled or discarded.
            JobNotFinishedError: It has not ended. A handler that lets this pass is snoozed and runs again, so
                you can wait for another job without occupying a worker.
        """
        stores = self._stores
        return await result_of(stores.jobs, stores.clock, job_id, timeout_s)

    # ---- for the other entry points -------------------------------------------------------------------

    def new_jobs(self, requests: Iterable[JobRequest]) -> list[NewJob]:
        """Return *requests* as checked new jobs."""
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
        """The store of jobs through callers' own connections; it needs no open Fairlead."""
        return self._outside.callers

    async def _store_requests(
        self, requests: Iterable[JobRequest], transaction: object | None
    ) -> list[EnqueuedJob]:
        return await self.enqueue_many(requests, transaction=transaction)

    def _twin(self) -> Fairlead:
        """Return a Fairlead with the same settings and declarations, for another event loop."""
        twin = Fairlead(self._config)  # on another thread: the caller has imported the modules of *include*
        twin._functions, twin._schedules = self._functions, self._schedules
        twin._subscribers = self._subscribers
        return twin


def _kind(kind: str | JobFunction[..., Any]) -> str:
    return kind.kind if isinstance(kind, JobFunction) else kind
