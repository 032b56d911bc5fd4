"""A list of a vendor, item by item, whatever its pages are like. Spec: C8."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from pydantic import BaseModel

from fairlead.engine.calls.pages import Page, PageFailed
from fairlead.engine.jobs.handler import JobContext
from fairlead.errors import DeadlineExceededError
from fairlead.policy.providers.pagination import Asked

Cursor = Mapping[str, Any]
Begin = Callable[["Cursor | None"], Awaitable[tuple[AsyncIterator[Page], Asked]]]
"""Makes the pages, from where another listing ended, or from the first."""
Pagination = Literal["graceful_termination", "requeue_job"]
"""What becomes of a list of which a page cannot be had."""
_ENDED = {"ended": True}


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where a job notes how far it has come in the list *name*; see `bookmark_in`."""

    job: JobContext
    name: str

    @property
    def told(self) -> Cursor | None:
        """What earlier runs of the job noted."""
        told = self.job.saved.get(self.name)
        return told if isinstance(told, dict) else None

    def note(self, cursor: Cursor | None) -> None:
        """The job goes on with *cursor*; None: there is no more."""
        self.job.save(self.name, _ENDED if cursor is None else dict(cursor))


def list_name(*asked: object) -> str:
    """What a job calls the list that is *asked* for so, in each of its runs alike."""
    told = repr([_ordered(each) for each in asked])
    return f"pages.{blake2b(told.encode(), digest_size=8).hexdigest()}"


def _ordered(value: object) -> object:
    """The same in whatever order it is written."""
    told = value.model_dump() if isinstance(value, BaseModel) else value
    return sorted(told.items()) if isinstance(told, Mapping) else told


def bookmark_in(job: JobContext, name: str) -> Bookmark:
    """For a list that this run of *job* begins now. One that it reads a second time is another list."""
    before = job._lists_started.get(name, 0)
    job._lists_started[name] = before + 1
    return Bookmark(job, f"{name}.{before + 1}" if before else name)


def _no_bookmark() -> Bookmark | None:
    return None


class Paginator:
    """A list from `Client.paginate`. Iterate over its items, or over ``pages()``, once.

    A page that cannot be read ends the list early. With ``graceful_termination``, `partial` is true then,
    `error` says why, and `cursor` is a JSON value with which ``paginate(..., cursor=...)`` continues. With
    ``requeue_job`` the reason is raised and the job runs again later. A lack of time burns no attempt if a
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
        self._at: Asked | None = None
        self.partial = False
        self.is_resumed = False
        """An earlier run of the job has worked off its beginning, or all of it: that is not given again."""
        self.error: Exception | None = None

    @property
    def cursor(self) -> Cursor | None:
        """The request for the first page that was not given, or for the last where nobody may ask for the one
        behind it; None where all were given."""
        if self._at is None:
            return None
        return {"url": self._at.url, "params": dict(self._at.params), "variables": dict(self._at.variables)}

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[list[Any]]:
        """The items page by page."""
        bookmark, told = self._bookmark(), self._from
        if bookmark is not None and bookmark.told is not None:
            told, self.is_resumed = bookmark.told, True
            if told == _ENDED:
                return
        progressed = False
        try:
            found, self._at = await self._begin(told)
            async for page in found:
                if page.incomplete is not None:
                    self.partial, self.error = True, self.error or page.incomplete
                yield list(page.items)
                self._at = page.following
                if bookmark is not None:
                    bookmark.note(self.cursor)
                    progressed = True
        except PageFailed as failed:
            if bookmark is not None:
                if progressed and isinstance(failed.cause, DeadlineExceededError):
                    failed.cause.retry_after_s = 0.0  # at once: not for ever, since each run comes on
                raise failed.cause from None
            self._at, self.partial, self.error = failed.at, True, failed.cause
