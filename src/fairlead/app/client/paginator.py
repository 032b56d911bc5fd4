"""Iterates over a paginated list, item by item. Spec: C8."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from pydantic import BaseModel

from fairlead.engine.calls.pages import Page, PageFailedError
from fairlead.engine.jobs.handler import JobContext
from fairlead.errors import DeadlineExceededError
from fairlead.policy.providers.pagination import PageRequest

Cursor = Mapping[str, Any]
Begin = Callable[["Cursor | None"], Awaitable[tuple[AsyncIterator[Page], PageRequest]]]
"""Returns the pages from a cursor, or from the first, and the first request."""
Pagination = Literal["graceful_termination", "requeue_job"]
"""What happens to a list if a page fails."""
_ENDED = {"ended": True}


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The stored progress of a job in the list *name*; see `bookmark_in`."""

    job: JobContext
    name: str

    @property
    def cursor(self) -> Cursor | None:
        """The cursor that earlier runs of the job stored."""
        cursor = self.job.saved.get(self.name)
        return cursor if isinstance(cursor, dict) else None

    def store(self, cursor: Cursor | None) -> None:
        """Store *cursor* as the place to continue from; None: the list has ended."""
        self.job.save(self.name, _ENDED if cursor is None else dict(cursor))


def list_name(*fields: object) -> str:
    """Return a name for the list with these *fields* that is the same in each run of a job."""
    text = repr([_ordered(field) for field in fields])
    return f"pages.{blake2b(text.encode(), digest_size=8).hexdigest()}"


def _ordered(value: object) -> object:
    """Return *value* in a form that does not depend on the order of its keys."""
    plain = value.model_dump() if isinstance(value, BaseModel) else value
    return sorted(plain.items()) if isinstance(plain, Mapping) else plain


def bookmark_in(job: JobContext, name: str) -> Bookmark:
    """Return the bookmark of a list that this run of *job* starts now. Reading it again is another list."""
    count = job._lists_started.get(name, 0)
    job._lists_started[name] = count + 1
    return Bookmark(job, f"{name}.{count + 1}" if count else name)


def _no_bookmark() -> Bookmark | None:
    return None


class Paginator:
    """A list from `Client.paginate`. Iterate over its items, or over ``pages()``, once.

    A page that cannot be read ends the list early. With ``graceful_termination``, `partial` is true then,
    `error` says why, and `cursor` is a JSON value with which ``paginate(..., cursor=...)`` continues. With
    ``requeue_job`` the reason is raised and the job runs again later. A lack of time uses up no attempt if a
    page was processed in this run. The next run continues behind the last processed page: earlier items are
    not returned again, and `is_resumed` is true. A handler that collects items and uses them at the end would
    then have only some of them, so you must choose this mode in the call.

    A list also ends early if its next page cannot be requested, because it is on another host or its cursor
    cannot be read. To continue, that last page is requested again. A page that was answered in part makes the
    list `partial`, and the list continues.
    """

    def __init__(
        self,
        begin: Begin,
        *,
        cursor: Cursor | None = None,
        bookmark: Callable[[], Bookmark | None] = _no_bookmark,
    ) -> None:
        self._begin = begin
        self._from = cursor
        self._bookmark = bookmark
        self._at: PageRequest | None = None
        self.partial = False
        self.is_resumed = False
        """True if an earlier run of the job processed a part of the list, which is not returned again."""
        self.error: Exception | None = None

    @property
    def cursor(self) -> Cursor | None:
        """The request for the first page that was not returned; None if all were.

        If the next page cannot be requested, it is the request for the last page.
        """
        if self._at is None:
            return None
        return {"url": self._at.url, "params": dict(self._at.params), "variables": dict(self._at.variables)}

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[list[Any]]:
        """Yield the items page by page."""
        bookmark, cursor = self._bookmark(), self._from
        if bookmark is not None and bookmark.cursor is not None:
            cursor, self.is_resumed = bookmark.cursor, True
            if cursor == _ENDED:
                return
        progressed = False
        try:
            pages, self._at = await self._begin(cursor)
            async for page in pages:
                if page.incomplete is not None:
                    self.partial, self.error = True, self.error or page.incomplete
                yield list(page.items)
                self._at = page.next_request
                if bookmark is not None:
                    bookmark.store(self.cursor)
                    progressed = True
        except PageFailedError as failed:
            if bookmark is not None:
                if progressed and isinstance(failed.cause, DeadlineExceededError):
                    failed.cause.retry_after_s = 0.0  # at once; this ends, because each run makes progress
                raise failed.cause from None
            self._at, self.partial, self.error = failed.at, True, failed.cause
