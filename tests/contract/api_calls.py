"""A client that shows what a rude API says, as the feedback parsers see it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse


class Caller:
    """Calls one account of an API."""

    def __init__(self, session: aiohttp.ClientSession, url: str, dialect: str) -> None:
        self._session = session
        self._url = url
        self._dialect = dialect

    async def __call__(self, path: str, method: str = "GET", **more: Any) -> RawResponse:
        """One call; *path* may be a whole address."""
        url = path if path.startswith("http") else self._url + path
        async with self._session.request(method, url, **more) as response:
            data = await response.read()
            headers = {name: response.headers.getall(name) for name in response.headers}
        try:
            return RawResponse(response.status, headers, body=json.loads(data))
        except ValueError:
            return RawResponse(response.status, headers, text=data.decode())

    async def post(self, path: str, json: object) -> RawResponse:
        """POST with a JSON body."""
        return await self(path, "POST", json=json)

    def parse_limits(self, reply: RawResponse) -> dict[str, LimitObservation]:
        """What fairlead makes of an answer, by the names of the limits."""
        return {item.limit: item for item in parse_limits(self._dialect, reply, now_epoch_s=None)}

    def refused(self, reply: RawResponse) -> LimitObservation:
        """The one refusal that it hears."""
        (refusal,) = (item for item in self.parse_limits(reply).values() if item.refused)
        return refusal


@asynccontextmanager
async def calling(api: Any, account: str = "acme", dialect: str | None = None) -> AsyncIterator[Caller]:
    """A caller of *account*."""
    async with aiohttp.ClientSession() as session:
        yield Caller(session, f"{api.url}/{account}", dialect or api.name)


def token(text: str) -> dict[str, dict[str, str]]:
    """Arguments of a call that bears this token."""
    return {"headers": {"Authorization": f"Bearer {text}"}}
