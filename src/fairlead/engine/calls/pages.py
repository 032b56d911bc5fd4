"""A provider's list, page by page.

Each page is a call of its own, with retries. Collected pages are never lost: if a page fails for good, the
job runs out of time, or the next page cannot be determined, the pages so far are valid, and PageFailedError says
why the list stopped and holds the request that continues it. Spec: C8.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead._core.clock import Clock, Draw
from fairlead.engine.calls.request import CallResult
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import (
    CallFailedError,
    DeadlineExceededError,
    DependencyUnavailableError,
    FailedError,
    FairleadError,
    InvalidInputError,
    RefusedError,
)
from fairlead.policy.calls.classify.verdict import Result
from fairlead.policy.calls.deadline import buffer_s, has_time
from fairlead.policy.failures.backoff import Jitter, backoff_s
from fairlead.policy.providers.pagination import NextPageError, PageRequest, PaginationConfig

RETRIES, BASE_S, CAP_S = 3, 2.0, 30.0
"""Retries of each page. A wait longer than CAP_S ends the list with the pages so far. Spec: DEFAULTS §2."""
MAX_PAGES = 10_000

Fetch = Callable[[PageRequest], Awaitable[CallResult]]
"""Requests one page."""


@dataclass(frozen=True, slots=True)
class Page:
    """The items of one page, and the request that continues the list (None: it was the last page).

    That request is for the next page, or for this page again if the next one cannot be requested.
    *incomplete* says why items of this page may be missing.
    """

    items: Sequence[Any]
    next_request: PageRequest | None
    incomplete: CallFailedError | None = None


def has_time_for_page(job: JobContext | None) -> Callable[[float], bool]:
    """Return the function that decides whether a wait and another page fit into the time of *job*.

    The function takes the wait in seconds. Without a job it returns True.
    """

    def may_wait(wait_s: float) -> bool:
        if job is None:
            return True
        left_s = job.remaining_s - buffer_s(job.timeout_s, pages=True)
        return has_time(left_s, wait_s, job.timeout_s)

    return may_wait


class PageFailedError(Exception):
    """A page failed; *at* is the request that continues the list there, *cause* the reason."""

    def __init__(self, at: PageRequest, cause: FairleadError) -> None:
        super().__init__(str(cause))
        self.at = at
        self.cause = cause


async def pages(
    key: ConnectionKey,
    fetch: Fetch,
    pagination: PaginationConfig,
    first: PageRequest,
    *,
    clock: Clock,
    draw: Draw,
    may_wait: Callable[[float], bool],
) -> AsyncIterator[Page]:
    """Yield the pages from *first* on, each fetched when it is needed.

    Args:
        may_wait: Returns whether there is time for a wait of so many seconds and a page after it.

    Raises:
        PageFailedError: A page failed for good.
        InvalidInputError: The pages lead in a circle.
    """
    request: PageRequest | None = first
    requests: set[tuple[str, str]] = set()
    while request is not None:
        identity = (
            request.url,
            repr((sorted(request.params.items()), sorted(request.variables.items(), key=str))),
        )
        if identity in requests or len(requests) >= MAX_PAGES:
            hint = "check how this API hands out lists: `pages` of the call or of the profile"
            message = f"the pages lead in a circle, or there are over {MAX_PAGES}"
            raise InvalidInputError(message, tenant=key.tenant, provider=key.provider, hint=hint)
        requests.add(identity)
        if not may_wait(0.0):
            raise PageFailedError(request, _no_time_error(key))
        result = await _fetch_with_retries(fetch, request, clock, draw, may_wait)
        items: Sequence[Any] | None = None
        try:
            items = pagination.page_items(result.raw_response)
            next_request = pagination.next_request(request, result.raw_response)
        except NextPageError as error:
            if items is not None:
                yield Page(items, request)
            raise PageFailedError(request, _next_page_error(key, error, result)) from None
        yield Page(items, next_request, _incomplete_error(key, result))
        request = next_request


async def _fetch_with_retries(
    fetch: Fetch, request: PageRequest, clock: Clock, draw: Draw, may_wait: Callable[[float], bool]
) -> CallResult:
    attempt = 0
    while True:
        try:
            return await fetch(request)
        except (FailedError, RefusedError, DependencyUnavailableError) as error:
            wait_s = backoff_s(attempt, base_s=BASE_S, cap_s=CAP_S, jitter=Jitter.EQUAL, draw=draw())
            wait_s = max(wait_s, error.retry_after_s or 0.0)
            if attempt >= RETRIES or wait_s > CAP_S or not _is_transient(error) or not may_wait(wait_s):
                raise PageFailedError(request, error) from error
            attempt += 1
            await clock.sleep(wait_s)


def _no_time_error(key: ConnectionKey) -> DeadlineExceededError:
    message = "there is no time left for the next page"
    return DeadlineExceededError(message, tenant=key.tenant, provider=key.provider)


def _incomplete_error(key: ConnectionKey, result: CallResult) -> CallFailedError | None:
    """Return why a partial page is incomplete, such as GraphQL data beside errors."""
    if result.verdict.result is not Result.PARTIAL:
        return None
    message = f"a page is incomplete: {result.verdict.why}"
    return _page_error(
        key, result, message, result.verdict.code, "compare the items with what the provider has"
    )


def _next_page_error(key: ConnectionKey, error: NextPageError, result: CallResult) -> CallFailedError:
    hint = (
        "check `pages` of the call or of the profile; the credential goes to no other host than the one asked"
    )
    return _page_error(key, result, str(error), error.reason, hint)


def _page_error(
    key: ConnectionKey, result: CallResult, message: str, reason: str, hint: str
) -> CallFailedError:
    return CallFailedError(
        message,
        tenant=key.tenant,
        provider=key.provider,
        category="permanent_request",
        reason=reason,
        hint=hint,
        verdict=result.verdict,
        response=result.response,
        raw_response=result.raw_response,
        attempts=result.attempts,
    )


def _is_transient(error: FairleadError) -> bool:
    return (error.category or "").startswith("transient") and not isinstance(error, DeadlineExceededError)
