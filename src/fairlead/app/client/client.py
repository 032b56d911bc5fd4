"""`fl.client(tenant, provider)`: calls in the style of httpx, within all limits. Spec: C1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack

from fairlead.app.client.batch import BatchResult, id_of, retry_failed
from fairlead.app.client.bulk import bulk_order
from fairlead.app.client.forwarding import ForwardedRequest, ForwardedResponse, forwarded_call
from fairlead.app.client.options import (
    TEXT,
    CallOptions,
    check_bounds,
    check_graphql,
    check_kind,
    check_list,
    check_no_body,
    check_options,
    class_of,
    graphql_options,
    request_of,
)
from fairlead.app.client.pagination import resolve_pagination
from fairlead.app.client.paginator import Bookmark, Cursor, Pagination, Paginator, bookmark_in, list_name
from fairlead.app.client.request import body_of, full_url, headers_of, plain_params
from fairlead.app.client.response import Response
from fairlead.app.client.streaming import STREAM_BYTES, StreamedResponse
from fairlead.engine.calls.bulk_operation import BulkRun, BulkRuns
from fairlead.engine.calls.bulk_order import FOLLOW_S
from fairlead.engine.calls.pages import Page
from fairlead.engine.calls.pipeline import Pipeline
from fairlead.engine.calls.request import MAX_BODY_BYTES, Call, CallResult
from fairlead.engine.jobs.handler import current_job
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.policy.calls.bulk.protocol import BulkQuery
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.calls.soap_request import SoapVersion, Xml, envelope, soap_headers
from fairlead.policy.jobs.job import check_delay
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.call_settings import DEADLINE_S
from fairlead.policy.providers.pagination import PageRequest, PaginationConfig
from fairlead.policy.providers.profile import Profile

T = TypeVar("T")


class Client:
    """A client for calls through one connection.

        async with fl.client("acme", "shopify") as api:
            response = await api.get("/orders.json", params={"limit": 50})
            orders = response.json()["orders"]

    Each call has a valid token, stays within every limit of the connection, is retried if that helps and is
    safe, and ends by its deadline. It returns a Response, whole or `partial`, or raises:

    - CallFailedError: the request was sent and failed.
    - RefusedError (LimitExceededError, NotSentError, DeadlineExceededError...): nothing was sent, except
      perhaps a request that the provider rejected with a 401.
    - SlotLostError: its slot was lost during the call.
    - DependencyUnavailableError: the database is unavailable, and what is cached of the connection is older
      than five minutes, or its token has expired.
    - InvalidInputError: the request cannot be sent, such as one to a host that is not the provider's.

    In a job you can let the first two pass: the job runs again when that makes sense.
    """

    def __init__(
        self,
        key: ConnectionKey,
        pipeline: Pipeline,
        profile: Callable[[str, str | None], Profile],
        bulks: BulkRuns,
    ) -> None:
        self._bulks = bulks
        self._key = key
        self._pipeline = pipeline
        self._profile = profile

    async def __aenter__(self) -> Client:
        """Return this client. Raise NotFoundError if there is no such connection."""
        await self._pipeline.connection(self._key, None)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        return None

    async def request(self, method: str, path: str, **options: Unpack[CallOptions]) -> Response:
        """Send a request to *path*, below the provider's API, or to a whole URL. See CallOptions."""
        call = await self._build_call(method, path, options)
        return Response(await self._pipeline.send(call), tenant=self._key.tenant, provider=self._key.provider)

    async def get(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """Send a GET request."""
        return await self.request("GET", path, **options)

    async def head(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """Send a HEAD request."""
        return await self.request("HEAD", path, **options)

    async def post(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """Send a POST request. It is retried only if the provider did not act, or if it is `idempotent`."""
        return await self.request("POST", path, **options)

    async def put(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """Send a PUT request."""
        return await self.request("PUT", path, **options)

    async def patch(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """Send a PATCH request. It is retried as POST is."""
        return await self.request("PATCH", path, **options)

    async def delete(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """Send a DELETE request."""
        return await self.request("DELETE", path, **options)

    async def graphql(
        self, query: str, variables: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> Response:
        """Send a GraphQL operation; the result is in ``.data``. The default `api` is graphql.

        A query is idempotent. A mutation is retried only if it was not executed.
        """
        check_graphql(query, variables, self._key)
        check_no_body(options, self._key, "graphql")
        return await self.request("POST", "", **graphql_options(query, variables or {}, options))

    async def soap(
        self,
        action: str,
        body: Xml,
        *,
        header: Xml | None = None,
        namespaces: Mapping[str, str] | None = None,
        version: SoapVersion = "1.1",
        path: str = "",
        **options: Unpack[CallOptions],
    ) -> Response:
        """Send *body* in a SOAP envelope to the `api` soap. Read the response by ``.xml``.

            await api.soap("get", {"get": {"baseRef": {"@internalId": "7"}}}, namespaces={"": "urn:..."})

        A fault raises CallFailedError with the provider's code as ``reason``. The call is retried as POST is.
        The credential is sent as an HTTP header.

        Args:
            body: XML, or a mapping of elements by name. ``@name`` is an attribute, ``#text`` the text, and a
                list repeats the element.
            header: The same for the header of the envelope.
            namespaces: The namespaces to declare around both, by prefix.

        Raises:
            InvalidInputError: *body* or *header* is not valid XML.
        """
        check_options(options, self._key)
        check_no_body(options, self._key, "soap")
        content = envelope(body, header=header, namespaces=namespaces, version=version)
        headers = {**soap_headers(action, version), **(options.get("headers") or {})}
        options["headers"], options["content"] = headers, content
        call = await self._build_call("POST", path, options, api="soap")
        return Response(await self._pipeline.send(call), tenant=self._key.tenant, provider=self._key.provider)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, **options: Unpack[CallOptions]
    ) -> AsyncIterator[StreamedResponse]:
        """Send a request and stream the response. The call holds its slot until the block ends.

            async with api.stream("GET", "/export", deadline_s=600) as response:
                async for line in response.aiter_lines():
                    ...

        Until the head of a successful response arrives, it is retried as any other call. Its body is not
        classified. `deadline_s` bounds all of it. The default of *max_body_bytes* is 64 GiB, since nothing is
        stored. If the response breaks off, the block raises CallFailedError.
        """
        defaults: CallOptions = {"max_body_bytes": STREAM_BYTES, **options}
        call = await self._build_call(method, path, defaults)
        async with self._pipeline.stream(call) as stream:
            yield StreamedResponse(stream, tenant=self._key.tenant, provider=self._key.provider)

    @asynccontextmanager
    async def bulk(
        self,
        text: str,
        *,
        variables: Mapping[str, Any] | None = None,
        token: str | None = None,
        wait_s: float = 0.0,
        deadline_s: float = FOLLOW_S,
    ) -> AsyncIterator[BulkRun]:
        """Run a bulk operation within the provider's limit of them, and read its rows.

            async with api.bulk("{ orders { edges { node { id name } } } }") as operation:
                async for row in operation.rows():
                    ...

        A running operation with the same text is adopted (`operation.adopted`), so a process that died during
        one can be replaced.

        A job does not wait long. Let BulkStillRunningError pass: the job runs again after `retry_after_s` (30 s) with
        the same slot, without using up an attempt. The same holds for BulkLimitReachedError.

        Args:
            text: A query, or a mutation with its other arguments in *variables*.
            token: The ``operation.token`` of an earlier block, to continue that operation.
            wait_s: The longest wait for a slot. Default 0.
            deadline_s: How long the operation is followed. Default a day.

        Raises:
            CallFailedError: It could not be started, or has failed.
            BulkLimitReachedError: All slots are taken.
            BulkStillRunningError: It is still running, and the job should come back.
            InvalidInputError: fairlead does not know bulk operations of this provider.
        """
        check_graphql(text, variables, self._key)
        check_delay("a slot for a bulk operation", wait_s, tenant=self._key.tenant)
        check_delay("the end of a bulk operation", deadline_s, tenant=self._key.tenant)
        connection = await self._pipeline.connection(self._key, min(deadline_s, DEADLINE_S))
        profile = self._profile(connection.key.provider, connection.variant)
        order = bulk_order(connection, profile, text, variables or {}, token, wait_s, deadline_s)

        async def send(query: BulkQuery) -> RawResponse:
            options: CallOptions = {"api": order.protocol.api, "idempotent": not query.changes}
            options["operation"] = "bulk.begin" if query.changes else "bulk.poll"
            response = await self.graphql(query.query, query.variables, **options)
            return response.raw_response

        async with self._bulks.enter(order, send) as run:
            yield run

    def paginate(
        self,
        path: str,
        *,
        items: str | None = None,
        pages: PaginationConfig | Mapping[str, Any] | None = None,
        query: str | None = None,
        variables: Mapping[str, Any] | None = None,
        cursor: Mapping[str, Any] | None = None,
        pagination: Pagination = "graceful_termination",
        **options: Unpack[CallOptions],
    ) -> Paginator:
        """Return the items of all pages of the list at *path*. Each page is fetched when it is needed.

            async for order in api.paginate("/orders.json", items="orders"):
                ...

        With *query* each page is a GraphQL operation. A page is retried up to three times (2 s, doubling to
        30 s). Outside of a job a list always ends gracefully.

        Args:
            items: Where the items are in a response, such as `orders` or `data.items`.
            pages: How the API paginates. Default: the setting of the connection, else of the profile.
            cursor: The `cursor` of an earlier Paginator, to continue that list.
            pagination: What happens if a page fails; see Paginator. Use ``requeue_job`` only if your loop
                processes each page before the next: a later run of the job does not get them again.
        """
        check_options(options, self._key)
        check_list(path, pages, cursor, pagination, self._key)
        self._check_query(query, variables, options)
        check_bounds(options.get("deadline_s"), options.get("max_body_bytes", MAX_BODY_BYTES), self._key)
        params = plain_params(options.get("params") or {})
        api = options.get("api") or ("graphql" if query is not None else None)
        start_times: list[float] = []  # of the first page: its time includes reading the connection

        async def fetch(page: PageRequest) -> CallResult:
            page_options: CallOptions = {**options, "params": page.params}
            if query is not None:
                page_options = graphql_options(query, page.variables, page_options)
            method = "GET" if query is None else "POST"
            started_mono = start_times.pop() if start_times else None
            call = await self._build_call(method, page.url, page_options, started_mono=started_mono)
            return await self._pipeline.send(call)

        async def begin(cursor: Cursor | None) -> tuple[AsyncIterator[Page], PageRequest]:
            start_times.append(self._pipeline.now_mono())
            connection = await self._pipeline.connection(self._key, options.get("deadline_s"))
            profile = self._profile(connection.key.provider, connection.variant)
            url = full_url(self._base(connection, path, api), path, None)
            at = request_of(cursor, self._key) if cursor else PageRequest(url, params, dict(variables or {}))
            by_api = self._pipeline.config_for(connection).settings.pages
            table = resolve_pagination(pages, by_api, profile, api or profile.limits.api, items, self._key)
            return self._pipeline.pages(self._key, fetch, table, at), at

        def bookmark() -> Bookmark | None:
            if (job := current_job.get()) is None or pagination != "requeue_job":
                return None
            return bookmark_in(job, list_name(self._key, path, params, query, variables, api, items, pages))

        return Paginator(begin, cursor=cursor, bookmark=bookmark)

    async def batch(
        self,
        items: Sequence[T],
        send: Callable[[list[T]], Awaitable[Response]],
        *,
        item_id: Callable[[T], str | None] = id_of,
    ) -> BatchResult[T]:
        """Send *items* in one call, and those that fail and may still succeed again.

            def send(chosen):
                return api.post("/contacts/batch/update", json={"inputs": chosen}, idempotent=True)

            result = await api.batch(contacts, send)
            for error in result.failed:
                print(error.item["id"], error.failure.code)

        Waits and the number of attempts are those of any call with the same failure. In a job, no wait is
        started that is longer than its calls may wait.

        If the first call fails as a whole, its error is raised. If a later one does, the result holds what
        was done before, and the error in ``error``.

        Args:
            send: Makes a call of this client for the given items.
            item_id: Returns the id by which a response names an item. Default: its "id". Not needed if
                responses name failed items by index.
        """
        started_mono = self._pipeline.now_mono()

        async def may_retry(verdict: Verdict, attempt: int) -> bool:
            connection = await self._pipeline.connection(self._key, None)
            return await self._pipeline.wait_for_items(connection, verdict, attempt, started_mono)

        return await retry_failed(items, send, item_id, may_retry)

    async def forward(self, request: ForwardedRequest) -> ForwardedResponse:
        """Send a request of another HTTP library, and return the response, whatever its status.

        Raises:
            InvalidInputError: It is not addressed to an API of the provider.
        """
        check_options({"idempotent": request.idempotent}, self._key)
        priority_class, started_mono = class_of(request.priority, self._key), self._pipeline.now_mono()
        check_bounds(request.deadline_s, request.max_body_bytes, self._key)
        connection = await self._pipeline.connection(self._key, request.deadline_s)
        profile = self._profile(connection.key.provider, connection.variant)
        call = forwarded_call(connection, profile, request, priority_class, started_mono)
        deadline_s = self._pipeline.config_for(connection).settings.deadline_s
        return await ForwardedResponse(self._pipeline, call, deadline_s).head()

    def _check_query(
        self, query: str | None, variables: Mapping[str, Any] | None, options: CallOptions
    ) -> None:
        check_graphql(query or "", variables, self._key)
        if query is not None:
            check_no_body(options, self._key, "paginate with a query")
            body_of({"json": variables})

    async def _build_call(
        self,
        method: str,
        path: str,
        options: CallOptions,
        *,
        api: str = "",
        started_mono: float | None = None,
    ) -> Call:
        """Return the call to send. Its time started at *started_mono*, default now.

        Args:
            api: The API to use if the options name none and the provider has it.
        """
        started_mono = self._pipeline.now_mono() if started_mono is None else started_mono
        if type(method) is not str or type(path) is not str:
            check_kind("method", method, TEXT, self._key)
            check_kind("path", path, TEXT, self._key)
        check_options(options, self._key)
        priority_class = class_of(options.get("priority"), self._key)
        max_body_bytes = options.get("max_body_bytes", MAX_BODY_BYTES)
        check_bounds(options.get("deadline_s"), max_body_bytes, self._key)
        connection = await self._pipeline.connection(self._key, options.get("deadline_s"), started_mono)
        profile = self._profile(connection.key.provider, connection.variant)
        api_name = options.get("api") or (api if api in profile.apis else None)
        body, body_headers = body_of(options)
        return Call(
            self._key,
            method.upper(),
            full_url(self._base(connection, path, api_name), path, options.get("params")),
            headers_of(options.get("headers"), body_headers, profile.credential_header),
            body,
            api=api_name,
            operation=options.get("operation") or "",
            cost=options.get("cost"),
            priority_class=priority_class,
            wait_s=options.get("wait_s"),
            deadline_s=options.get("deadline_s"),
            idempotent=options.get("idempotent"),
            max_body_bytes=max_body_bytes,
            started_mono=started_mono,
        )

    def _base(self, connection: Connection, path: str, api: str | None) -> str | None:
        if path.startswith(("https://", "http://")):
            return None
        return self._pipeline.config_for(connection).base(connection, api)
