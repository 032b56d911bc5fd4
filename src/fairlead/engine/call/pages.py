"""A list of a vendor, page by page (C8).

Each page is a call of its own, tried again with patience. What was collected is never lost: where a page
fails for good, or the time of a job runs out, the pages so far are given, marked partial, with the request
that would go on from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.clock import Clock, Draw
from fairlead.engine.call.wish import Came
from fairlead.errors import CallFailed, DeadlineTooShort, GateClosed, InputInvalid
from fairlead.policy.backoff import Jitter, backoff_s
from fairlead.policy.page import Asked, Pages

RETRIES, BASE_S, CAP_S = 3, 2.0, 30.0
"""Of each page (DEFAULTS §2)."""
MOST_PAGES = 10_000

Fetch = Callable[[Asked], Awaitable[Came]]
"""One page."""


@dataclass(frozen=True, slots=True)
class Page:
    """The items of one page, and the request for the next one (None: it was the last)."""

    items: Sequence[Any]
    following: Asked | None


class PageFailed(Exception):
    """A page could not be had; *at* is the request that would go on from there, *cause* why."""

    def __init__(self, at: Asked, cause: Exception) -> None:
        super().__init__(str(cause))
        self.at = at
        self.cause = cause


async def pages(
    fetch: Fetch, way: Pages, first: Asked, *, clock: Clock, draw: Draw, may_wait: Callable[[float], bool]
) -> AsyncIterator[Page]:
    """Pages from *first* on, each fetched when it is asked for.

    *may_wait*: whether there is time to wait so long for another try. Raises PageFailed where one could not
    be had, InputInvalid where the vendor leads in a circle.
    """
    asked: Asked | None = first
    seen: set[tuple[str, str]] = set()
    while asked is not None:
        mark = (asked.url, repr((sorted(asked.params.items()), sorted(asked.variables.items(), key=str))))
        if mark in seen or len(seen) >= MOST_PAGES:
            hint = "check how this API hands out lists: `pages` of the call or of the profile"
            raise InputInvalid(f"the pages lead in a circle, or there are over {MOST_PAGES}", hint=hint)
        seen.add(mark)
        came = await _fetched(fetch, asked, clock, draw, may_wait)
        following = way.following(asked, came.reply)
        yield Page(way.found(came.reply), following)
        asked = following


async def _fetched(
    fetch: Fetch, asked: Asked, clock: Clock, draw: Draw, may_wait: Callable[[float], bool]
) -> Came:
    attempt = 0
    while True:
        try:
            return await fetch(asked)
        except (CallFailed, GateClosed, DeadlineTooShort) as error:
            wait_s = backoff_s(attempt, base_s=BASE_S, cap_s=CAP_S, jitter=Jitter.EQUAL, draw=draw())
            wait_s = max(wait_s, error.retry_after_s or 0.0)
            if attempt >= RETRIES or not _may_pass(error) or not may_wait(wait_s):
                raise PageFailed(asked, error) from error
            attempt += 1
            await clock.sleep(wait_s)


def _may_pass(error: CallFailed | GateClosed | DeadlineTooShort) -> bool:
    return (error.category or "").startswith("transient") and not isinstance(error, DeadlineTooShort)
