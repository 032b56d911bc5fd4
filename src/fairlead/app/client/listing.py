"""A list of a vendor, item by item, whatever its pages are like (C8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from fairlead.engine.call.pages import Page, PageFailed
from fairlead.policy.page import Asked


class Listing:
    """What `Client.paginate` gives: iterate over its items, or over ``pages()``, once.

    A page that cannot be had ends it early: then `partial` is true, `error` says why, and `resume` holds what
    `paginate(..., resume=...)` goes on from, plain enough for the arguments of a job.
    """

    def __init__(self, begin: Callable[[], Awaitable[tuple[AsyncIterator[Page], Asked]]]) -> None:
        self._begin = begin
        self._at: Asked | None = None
        self.partial = False
        self.error: Exception | None = None

    @property
    def resume(self) -> Mapping[str, Any] | None:
        """The request for the first page that was not given; None where all were."""
        if self._at is None:
            return None
        return {"url": self._at.url, "params": dict(self._at.params), "variables": dict(self._at.variables)}

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[list[Any]]:
        """The items page by page."""
        try:
            found, self._at = await self._begin()
            async for page in found:
                yield list(page.items)
                self._at = page.following
        except PageFailed as failed:
            self.partial, self.error = True, failed.cause
