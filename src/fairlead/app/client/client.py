"""`fl.client(tenant, provider)`: calls in the style of httpx, and everything else taken care of.

Spec: C1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack

from fairlead.app.client.batch import BatchResult, retry_failed
from fairlead.app.client.bulk import bulk_order
from fairlead.app.client.forwarding import ForwardedRequest, ForwardedResponse, forwarded_call
from fairlead.app.client.options import (
    TEXT,
    CallOptions,
    asked_again,
    check_bounds,
    check_graphql,
    check_kind,
    check_list,
    check_no_body,
    check_options,
    class_of,
    graphql_options,
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
from fairlead.policy.providers.pagination import Asked, Pages
from fairlead.policy.providers.profile import Profile

T = TypeVar("T")


def _id_of(item: object) -> str | None:
    told = item.get("id") if isinstance(item, Mapping) else None
    return None if told is None else str(told)


class Client:
    """Calls through one connection.

        async with fl.client("acme", "shopify") as api:
            response = await api.get("/orders.json", params={"limit": 50})
            orders = response.json()["orders"]

    Each call has a valid token, keeps to every limit of the connection, is tried again where that helps and
    cannot do harm, and ends by its deadline. It gives a Response, whole or `partial`, or raises: CallFailedError
    for what was sent and failed, a Refused (LimitExceededError, NotSentError, DeadlineExceededError...)
    where nothing was
    sent, or nothing but a request that a 401 turned away. In a job both may pass: the job comes back when it
    makes sense. SlotLostError where its slot was lost while it was under way; DependencyUnavailableError where the
    database is away and what is known of the connection is older than five minutes, or its token has ended.
    InvalidInputError for what cannot be sent, such as a call to a host that is not the provider's.
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
        """NotFoundError where there is no such connection."""
        await self._pipeline.connection(self._key, None)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        return None

    async def request(self, method: str, path: str, **options: Unpack[CallOptions]) -> Response:
        """Call *path* (behind the provider's API, or a whole address) with *method*; see CallOptions."""
        call = await self._made(method, path, options)
        came = await self._pipeline.send(call)
        return Response(came, tenant=self._key.tenant, provider=self._key.provider)

    async def get(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """GET."""
        return await self.request("GET", path, **options)

    async def head(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """HEAD."""
        return await self.request("HEAD", path, **options)

    async def post(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """POST. It is sent again only where the provider surely did not act, or as `idempotent`."""
        return await self.request("POST", path, **options)

    async def put(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """PUT."""
        return await self.request("PUT", path, **options)

    async def patch(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """PATCH; as POST."""
        return await self.request("PATCH", path, **options)

    async def delete(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """DELETE."""
        return await self.request("DELETE", path, **options)

    async def graphql(
        self, query: str, variables: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> Response:
        """A GraphQL operation, with `api` graphql unless told otherwise; what it gave is in ``.data``.

        A query that changes nothing may be sent again; a mutation only where it surely was not run.
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
        """A SOAP operation: *body* in an envelope, sent to the `api` soap; the answer is read by ``.xml``.

            await api.soap("get", {"get": {"baseRef": {"@internalId": "7"}}}, namespaces={"": "urn:..."})

        *body* and *header* are XML, or mappings: elements by name, ``@name`` an attribute, ``#text`` the
        text, a list the element several times. *namespaces*: declared around both, by prefix. A fault raises
        CallFailedError with the vendor's code as ``reason``. As POST it is sent again only where that is safe. The
        credential goes as a header of HTTP. InvalidInputError for what is no XML.
        """
        check_options(options, self._key)
        check_no_body(options, self._key, "soap")
        content = envelope(body, header=header, namespaces=namespaces, version=version)
        headers = {**soap_headers(action, version), **(options.get("headers") or {})}
        options["headers"], options["content"] = headers, content
        call = await self._made("POST", path, options, api="soap")
        return Response(await self._pipeline.send(call), tenant=self._key.tenant, provider=self._key.provider)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, **options: Unpack[CallOptions]
    ) -> AsyncIterator[StreamedResponse]:
        """A call whose answer is taken as it comes; it is in flight, and holds its slot, till the block ends.

            async with api.stream("GET", "/export", deadline_s=600) as response:
                async for line in response.aiter_lines():
                    ...

        Until the head of a success has come it is as any other call; what it says in its body is not judged.
        `deadline_s` is for all of it. *max_body_bytes*: default 64 GiB, since nothing is kept. An answer that
        breaks off raises CallFailedError from the block.
        """
        told: CallOptions = {"max_body_bytes": STREAM_BYTES, **options}
        call = await self._made(method, path, told)
        async with self._pipeline.stream(call) as came:
            yield StreamedResponse(came, tenant=self._key.tenant, provider=self._key.provider)

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
        """A bulk operation, followed to its rows, within the places that the vendor has for such.

            async with api.bulk("{ orders { edges { node { id name } } } }") as operation:
                async for row in operation.rows():
                    ...

        *text*: a query, or a mutation with what the vendor needs besides in *variables*. One of the same text
        that runs already is adopted (`operation.adopted`), so whoever died in the middle goes on. *token*: of
        ``operation.token``, goes on with that one. *wait_s*: how long it may wait for a place, default 0.
        *deadline_s*: how long it is followed, default a day.

        In a job nobody waits long: BulkStillRunningError passes, the job comes back in `again_s` (30 s) into the
        same place, and burns no attempt; so it does after BulkLimitReachedError, where there is no place.
        CallFailedError where
        it was not begun or has failed, InvalidInputError where the provider has none that are known here.
        """
        check_graphql(text, variables, self._key)
        check_delay("a place among the bulk operations", wait_s, tenant=self._key.tenant)
        check_delay("the end of a bulk operation", deadline_s, tenant=self._key.tenant)
        connection = await self._pipeline.connection(self._key, min(deadline_s, DEADLINE_S))
        profile = self._profile(connection.key.provider, connection.variant)
        order = bulk_order(connection, profile, text, variables or {}, token, wait_s, deadline_s)

        async def ask(one: BulkQuery) -> RawResponse:
            options: CallOptions = {"api": order.protocol.api, "idempotent": not one.changes}
            options["operation"] = "bulk.begin" if one.changes else "bulk.look"
            answer = await self.graphql(one.query, one.variables, **options)
            return answer.raw_response

        async with self._bulks.enter(order, ask) as run:
            yield run

    def paginate(
        self,
        path: str,
        *,
        items: str | None = None,
        pages: Pages | Mapping[str, Any] | None = None,
        query: str | None = None,
        variables: Mapping[str, Any] | None = None,
        cursor: Mapping[str, Any] | None = None,
        pagination: Pagination = "graceful_termination",
        **options: Unpack[CallOptions],
    ) -> Paginator:
        """Return the items of all pages of the list at *path*; each page is fetched when its items are needed.

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
        began: list[float] = []  # of the first page: what is read for the list is a part of its time

        async def fetch(asked: Asked) -> CallResult:
            told: CallOptions = {**options, "params": asked.params}
            if query is not None:
                told = graphql_options(query, asked.variables, told)
            method, started_mono = "GET" if query is None else "POST", began.pop() if began else None
            call = await self._made(method, asked.url, told, started_mono=started_mono)
            return await self._pipeline.send(call)

        async def begin(told: Cursor | None) -> tuple[AsyncIterator[Page], Asked]:
            began.append(self._pipeline.now_mono())
            connection = await self._pipeline.connection(self._key, options.get("deadline_s"))
            profile = self._profile(connection.key.provider, connection.variant)
            url = full_url(self._base(connection, path, api), path, None)
            first = asked_again(told, self._key) if told else Asked(url, params, dict(variables or {}))
            own = self._pipeline.config_for(connection).settings.pages
            way = resolve_pagination(pages, own, profile, api or profile.limits.api, items, self._key)
            return self._pipeline.pages(self._key, fetch, way, first), first

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
        named: Callable[[T], str | None] = _id_of,
    ) -> BatchResult[T]:
        """Send *items* in one call; of those that fail, the ones that may still succeed are sent again.

            def send(chosen):
                return api.post("/contacts/batch/update", json={"inputs": chosen}, idempotent=True)

            result = await api.batch(contacts, send)
            for each in result.failed:
                print(each.item["id"], each.why.code)

        *send* makes a call of this client for the items that it is given. Which of them failed the answer
        tells by place, or by a name that *named* finds in an item (default its "id"). The waits and the
        number of tries are those of any call that fails so; in a job none is begun that is longer than its
        calls wait.

        Raises what the first call raises. If a later one fails as a whole, what was done before is done:
        the result says so in ``error``.
        """
        started_mono = self._pipeline.now_mono()

        async def may_go_on(verdict: Verdict, attempt: int) -> bool:
            connection = await self._pipeline.connection(self._key, None)
            return await self._pipeline.wait_for_items(connection, verdict, attempt, started_mono)

        return await retry_failed(items, send, named, may_go_on)

    async def forward(self, request: ForwardedRequest) -> ForwardedResponse:
        """A request of another HTTP library; for `fairlead.httpx` and `fairlead.httpx2`.

        Its answer, whatever its status. InvalidInputError where it goes elsewhere than to the provider's APIs.
        """
        check_options({"idempotent": request.idempotent}, self._key)
        priority_class, started_mono = class_of(request.priority, self._key), self._pipeline.now_mono()
        check_bounds(request.deadline_s, request.max_body_bytes, self._key)
        connection = await self._pipeline.connection(self._key, request.deadline_s)
        profile = self._profile(connection.key.provider, connection.variant)
        call = forwarded_call(connection, profile, request, priority_class, started_mono)
        deadline_s = self._pipeline.config_for(connection).settings.deadline_s
        return await ForwardedResponse(self._pipeline, call, deadline_s).head()

    # ---- from words to a call ------------------------------------------------------------------

    def _check_query(
        self, query: str | None, variables: Mapping[str, Any] | None, options: CallOptions
    ) -> None:
        check_graphql(query or "", variables, self._key)
        if query is not None:
            check_no_body(options, self._key, "paginate with a query")
            body_of({"json": variables})

    async def _made(
        self,
        method: str,
        path: str,
        options: CallOptions,
        *,
        api: str = "",
        started_mono: float | None = None,
    ) -> Call:
        """The call that is asked for; its time has begun, now or at *began_s*.

        *api*: which to take where the options name none, if the provider has it.
        """
        started_mono = self._pipeline.now_mono() if started_mono is None else started_mono
        if type(method) is not str or type(path) is not str:
            check_kind("method", method, TEXT, self._key)
            check_kind("path", path, TEXT, self._key)
        check_options(options, self._key)
        priority_class = class_of(options.get("priority"), self._key)
        most = options.get("max_body_bytes", MAX_BODY_BYTES)
        check_bounds(options.get("deadline_s"), most, self._key)
        connection = await self._pipeline.connection(self._key, options.get("deadline_s"), started_mono)
        profile = self._profile(connection.key.provider, connection.variant)
        named = options.get("api") or (api if api in profile.apis else None)
        body, told = body_of(options)
        return Call(
            self._key,
            method.upper(),
            full_url(self._base(connection, path, named), path, options.get("params")),
            headers_of(options.get("headers"), told, profile.credential_header),
            body,
            api=named,
            operation=options.get("operation") or "",
            cost=options.get("cost"),
            priority_class=priority_class,
            wait_s=options.get("wait_s"),
            deadline_s=options.get("deadline_s"),
            idempotent=options.get("idempotent"),
            max_body_bytes=most,
            started_mono=started_mono,
        )

    def _base(self, connection: Connection, path: str, api: str | None) -> str | None:
        if path.startswith(("https://", "http://")):
            return None
        return self._pipeline.config_for(connection).base(connection, api)
