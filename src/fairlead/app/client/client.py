"""`fl.client(tenant, provider)`: calls with the manners of httpx, and everything else taken care of (C1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack

from fairlead.app.client.request import CallOptions, body_of, full_url
from fairlead.app.client.response import Response
from fairlead.engine.call.pipeline import Pipeline
from fairlead.engine.call.wish import DEADLINE_S, MAX_BODY_BYTES, Call
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.errors import InputInvalid
from fairlead.policy.profile import Profile

CLASSES: Mapping[str, int] = {"real-time": 1, "scheduled": 2, "batch": 3}


class Client:
    """Calls through one connection.

        async with fl.client("acme", "shopify") as api:
            response = await api.get("/orders.json", params={"limit": 50})
            orders = response.json()["orders"]

    Each call has a valid token, keeps to every limit of the connection, is tried again where that helps and
    cannot do harm, and ends by its deadline. It gives a Response, whole or `partial`, or raises: CallFailed
    for what was sent and failed, a Refused (GateClosed, ReauthRequired, DeadlineTooShort) where nothing was
    sent. In a job both may pass: the job comes back when it makes sense.
    """

    def __init__(
        self,
        key: ConnectionKey,
        pipeline: Pipeline,
        connection: Callable[[ConnectionKey], Awaitable[Connection]],
        profile: Callable[[str, str | None], Profile],
    ) -> None:
        self._key = key
        self._pipeline = pipeline
        self._connection = connection
        self._profile = profile

    async def __aenter__(self) -> Client:
        """NotFound where there is no such connection."""
        await self._connection(self._key)
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        return None

    async def request(self, method: str, path: str, **options: Unpack[CallOptions]) -> Response:
        """Call *path* (behind the provider's API, or a whole address) with *method*; see CallOptions."""
        connection = await self._connection(self._key)
        call = self._call(connection, method.upper(), path, options)
        came = await self._pipeline.send(call)
        return Response(came, tenant=self._key.tenant, provider=self._key.provider)

    async def get(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """GET."""
        return await self.request("GET", path, **options)

    async def head(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """HEAD."""
        return await self.request("HEAD", path, **options)

    async def post(self, path: str, **options: Unpack[CallOptions]) -> Response:
        """POST. It is sent again only where the provider surely did not act, or as `repeatable`."""
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
        body: dict[str, Any] = {"query": query}
        if variables is not None:
            body["variables"] = dict(variables)
        told: CallOptions = {"api": "graphql", "repeatable": _is_query(query), **options, "json": body}
        return await self.request("POST", "", **told)

    # ---- from words to a call ------------------------------------------------------------------

    def _call(self, connection: Connection, method: str, path: str, options: CallOptions) -> Call:
        profile = self._profile(connection.key.provider, connection.variant)
        body, told = body_of(options)
        headers = {**told, **{name.lower(): value for name, value in options.get("headers", {}).items()}}
        if profile.credential_header.name.lower() in headers:
            raise self._wrong("the credential is added here", "leave it out of the headers")
        return Call(
            self._key,
            method,
            full_url(self._base(profile, connection, path, options.get("api")), path, options.get("params")),
            headers,
            body,
            api=options.get("api"),
            operation=options.get("operation", ""),
            cost=options.get("cost"),
            class_number=self._class(options.get("priority")),
            wait_s=options.get("wait_s"),
            deadline_s=options.get("deadline_s", DEADLINE_S),
            repeatable=options.get("repeatable"),
            max_body_bytes=options.get("max_body_bytes", MAX_BODY_BYTES),
        )

    @staticmethod
    def _base(profile: Profile, connection: Connection, path: str, api: str | None) -> str | None:
        if path.startswith(("https://", "http://")):
            return None
        return profile.api_url(api or profile.limits.api, connection.endpoint)

    def _class(self, priority: str | int | None) -> int | None:
        if priority is None or isinstance(priority, int):
            return priority
        if priority not in CLASSES:
            raise self._wrong(f"{priority!r} is no priority", f"use one of {', '.join(CLASSES)}, or a number")
        return CLASSES[priority]

    def _wrong(self, what: str, hint: str) -> InputInvalid:
        return InputInvalid(what, tenant=self._key.tenant, provider=self._key.provider, hint=hint)


def _is_query(text: str) -> bool:
    """Whether a GraphQL document holds no mutation; a comment or an odd form counts as one."""
    return "mutation" not in text and "subscription" not in text
