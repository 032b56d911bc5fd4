"""Lists over several pages, with the vendor played: nothing collected is lost, nothing goes in a circle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fairlead.app.client.paginator import Bookmark, Paginator, bookmark_in
from fairlead.engine.calls.pages import CAP_S, RETRIES, pages
from fairlead.engine.calls.request import CallResult
from fairlead.engine.jobs.handler import SAVED, JobContext
from fairlead.engine.ports import ConnectionKey, HttpResponse
from fairlead.errors import (
    CallFailedError,
    DeadlineExceededError,
    DependencyUnavailableError,
    EndpointPausedError,
    InvalidInputError,
    LimiterUnavailableError,
    LimitExceededError,
    NotSentError,
    RateLimitedError,
    ReauthRequiredError,
    RefreshInProgressError,
    SlotLostError,
)
from fairlead.policy.calls.classify.verdict import DONE, Result, Verdict
from fairlead.policy.jobs.job import Retry, outcome_of_exception
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.pagination import (
    CursorPagination,
    LinkPagination,
    OffsetPagination,
    PageRequest,
)
from fairlead.testing import ManualClock
from tests.support.engine import a_job

KEY = ConnectionKey("acme", "shop")
URL = "https://api.example.com/items"
PAGINATION = CursorPagination(items="items", cursor="next", param="after")
FIRST = PageRequest(URL, {"limit": "2"})


def call_result(body: object, verdict: Verdict = DONE) -> CallResult:
    return CallResult(HttpResponse(200, {}, b"", 0.0), RawResponse(200, {}, body), verdict, 1, 0.0)


class Vendor:
    """Answers in their order, and what was asked."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.verdicts: list[Verdict] = []
        self.asked: list[PageRequest] = []
        self.clock = ManualClock(autojump_s=0.0)
        self.job: JobContext | None = None

    async def fetch(self, request: PageRequest) -> CallResult:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return call_result(answer, self.verdicts.pop(0) if self.verdicts else DONE)

    def listing(
        self, pagination: Any = PAGINATION, *, time_s: float = 1000.0, cursor: Any = None
    ) -> Paginator:
        def may_wait(wait_s: float) -> bool:
            return self.clock.monotonic() + wait_s <= time_s

        async def begin(paginator_state: Any) -> Any:
            first = FIRST if paginator_state is None else PageRequest(**paginator_state)
            clock = self.clock
            return pages(
                KEY, self.fetch, pagination, first, clock=clock, draw=lambda: 0.5, may_wait=may_wait
            ), first

        def bookmark() -> Bookmark | None:
            return None if self.job is None else bookmark_in(self.job, "orders")

        return Paginator(begin, cursor=cursor, bookmark=bookmark)


def page(*items: int, after_cursor: str | None = None) -> dict[str, object]:
    return {"items": list(items), "next": after_cursor}


def passing(retry_after_s: float | None = None) -> CallFailedError:
    return CallFailedError("too many", category="transient_rate_limit", retry_after_s=retry_after_s)


async def test_all_items_of_all_pages() -> None:
    vendor = Vendor([page(1, 2, after_cursor="a"), page(3, 4, after_cursor="b"), page(5)])
    listing = vendor.listing()
    assert [item async for item in listing] == [1, 2, 3, 4, 5]
    assert [dict(request.params) for request in vendor.asked] == [
        {"limit": "2"},
        {"limit": "2", "after": "a"},
        {"limit": "2", "after": "b"},
    ]
    assert (listing.partial, listing.cursor, listing.error) == (False, None, None)


async def test_a_page_is_tried_again_and_no_earlier_than_the_vendor_says() -> None:
    vendor = Vendor([page(1, after_cursor="a"), passing(25.0), page(2)])
    assert [item async for item in vendor.listing()] == [1, 2]
    assert vendor.clock.monotonic() >= 25


@pytest.mark.parametrize(
    ("failures", "time_s"),
    [
        ([passing()] * (RETRIES + 1), 1000.0),
        ([CallFailedError("gone", category="permanent_request")], 1000.0),
        ([LimitExceededError("no room", retry_after_s=20.0)], 10.0),
        ([passing(86_400.0)], 1e9),
        ([LimitExceededError("no room", retry_after_s=CAP_S + 1)], 1e9),
        ([ReauthRequiredError("the grant is gone")], 1000.0),
        ([EndpointPausedError("paused")], 1000.0),
        *(
            ([error] * (RETRIES + 1), 1000.0)
            for error in (
                RefreshInProgressError("another asks", retry_after_s=1.0),
                RateLimitedError("cooldown", retry_after_s=1.0),
                LimiterUnavailableError("no Redis", retry_after_s=1.0),
                NotSentError("no such host", category="transient_network"),
                SlotLostError("lost"),
                DependencyUnavailableError("no PostgreSQL"),
            )
        ),
    ],
)
async def test_collected_items_are_kept_with_their_cursor(failures: list[Exception], time_s: float) -> None:
    vendor = Vendor([page(1, 2, after_cursor="a"), *failures, page(3)])
    listing = vendor.listing(time_s=time_s)
    assert [item async for item in listing] == [1, 2]
    assert listing.partial
    assert listing.error is failures[-1]
    assert listing.cursor == {"url": URL, "params": {"limit": "2", "after": "a"}, "variables": {}}
    assert len(vendor.answers) == 1
    assert vendor.clock.monotonic() <= RETRIES * CAP_S, "it waited longer than any page is worth"


async def test_a_circle_is_told() -> None:
    with pytest.raises(InvalidInputError, match="circle"):
        _ = [item async for item in Vendor([page(1, after_cursor="a")] * 5).listing()]
    endless = Vendor([[1, 2], [3], []])
    assert [item async for item in endless.listing(OffsetPagination())] == [1, 2, 3]


async def test_no_page_is_begun_without_time_for_it() -> None:
    vendor = Vendor([page(1, after_cursor="a"), page(2)])
    listing = vendor.listing(time_s=-1.0)
    assert [item async for item in listing] == []
    assert (vendor.asked, listing.partial, type(listing.error)) == ([], True, DeadlineExceededError)
    assert listing.cursor == {"url": URL, "params": {"limit": "2"}, "variables": {}}


@pytest.mark.parametrize("address", ["https://evil.example/items?page=2", f"{URL}?page=2#x", f"{URL}?q=a b"])
async def test_a_list_that_goes_on_where_nobody_may_ask_is_partial_and_says_so(address: str) -> None:
    vendor = Vendor([{"items": [1, 2], "next": address}])
    listing = vendor.listing(LinkPagination(items="items", next="next"))
    assert [item async for item in listing] == [1, 2]
    assert listing.partial
    assert isinstance(listing.error, CallFailedError)
    assert (listing.error.reason, listing.error.category) == ("leads_elsewhere", "permanent_request")
    assert listing.cursor == {"url": URL, "params": {"limit": "2"}, "variables": {}}, "the page that said it"


async def test_a_list_whose_next_page_cannot_be_read_is_partial() -> None:
    for body, items in (({"items": [1], "next": "x" * 5000}, [1]), ({"items": "gone", "next": None}, [])):
        listing = Vendor([body]).listing()
        assert [item async for item in listing] == items
        assert (listing.partial, listing.cursor) == (
            True,
            {"url": URL, "params": {"limit": "2"}, "variables": {}},
        )
        assert isinstance(listing.error, CallFailedError)
        assert listing.error.reason == "next_page_unreadable"


async def test_a_page_that_came_in_part_makes_the_list_partial_and_it_goes_on() -> None:
    vendor = Vendor([page(1, after_cursor="a"), page(2)])
    vendor.verdicts = [replace(DONE, result=Result.PARTIAL, code="INTERNAL")]
    listing = vendor.listing()
    assert [item async for item in listing] == [1, 2]
    assert isinstance(listing.error, CallFailedError)
    assert (listing.partial, listing.error.reason, listing.cursor) == (True, "INTERNAL", None)


async def test_a_list_that_leads_elsewhere_is_not_noted_as_ended() -> None:
    vendor = Vendor(
        [{"items": [1], "next": f"{URL}?page=2"}, {"items": [2], "next": "https://evil.example/"}]
    )
    pagination = LinkPagination(items="items", next="next")
    vendor.job = run_of(a_job("sync"))
    received: list[int] = []

    async def work() -> None:
        async for items in vendor.listing(pagination).pages():
            received.extend(items)

    with pytest.raises(CallFailedError, match="another host"):
        await work()
    assert received == [1, 2]
    again = Vendor([{"items": [2], "next": f"{URL}?page=3"}, {"items": [3]}])
    again.job = run_of(a_job("sync", args=dict(vendor.job._next_args or {})))
    assert [item async for item in again.listing(pagination)] == [2, 3], "its vendor has been mended"
    assert [request.url for request in again.asked] == [f"{URL}?page=2", f"{URL}?page=3"]


def run_of(job: Any) -> JobContext:
    return JobContext(job, lambda: 60.0)


async def test_a_requeued_job_goes_on_behind_the_last_page_that_it_worked_off() -> None:
    vendor = Vendor(
        [page(1, 2, after_cursor="a"), page(3, after_cursor="b"), DeadlineExceededError("no time")]
    )
    vendor.job = run_of(a_job("sync"))
    received: list[int] = []

    async def work() -> None:
        async for items in vendor.listing().pages():
            received.extend(items)

    with pytest.raises(DeadlineExceededError) as late:
        await work()
    assert late.value.retry_after_s == 0.0, "it comes back at once, and burns no attempt"
    assert received == [1, 2, 3]
    next_args = vendor.job._next_args
    assert next_args is not None
    assert next_args[SAVED] == {
        "orders": {"url": URL, "params": {"limit": "2", "after": "b"}, "variables": {}}
    }

    again = Vendor([page(4)])
    again.job = run_of(a_job("sync", args=dict(next_args)))
    assert SAVED not in again.job.args, "a handler sees what was enqueued"
    went_on = again.listing()
    assert [item async for item in went_on] == [4]
    assert (went_on.is_resumed, went_on.partial) == (True, False), (
        "it says that 1, 2 and 3 are not among them"
    )
    assert dict(again.asked[0].params) == {"limit": "2", "after": "b"}

    ended = Vendor([])
    ended.job = run_of(a_job("sync", args=dict(again.job._next_args or {})))
    over = ended.listing()
    assert [item async for item in over] == [], "it was worked off to its end"
    assert over.is_resumed


async def test_a_list_that_a_run_reads_twice_is_read_twice() -> None:
    vendor = Vendor(
        [page(1, 2), page(1, after_cursor="a"), DeadlineExceededError("no time", retry_after_s=0.0)]
    )
    vendor.job = run_of(a_job("sync"))
    assert [item async for item in vendor.listing()] == [1, 2]
    second = vendor.listing()
    with pytest.raises(DeadlineExceededError):
        assert [item async for item in second] == [1]
    assert not second.is_resumed
    again = Vendor([page(2)])
    again.job = run_of(a_job("sync", args=dict(vendor.job._next_args or {})))
    assert [item async for item in again.listing()] == [], "the first was worked off"
    assert [item async for item in again.listing()] == [2], "the second was not"


async def test_saved_cursor_overrides_the_given_one() -> None:
    vendor = Vendor([page(3, after_cursor="b"), DeadlineExceededError("no time", retry_after_s=0.0)])
    vendor.job = run_of(a_job("sync"))
    state = {"url": URL, "params": {"after": "a"}, "variables": {}}
    with pytest.raises(DeadlineExceededError):
        _ = [item async for item in vendor.listing(cursor=state)]
    again = Vendor([page(4)])
    again.job = run_of(a_job("sync", args=dict(vendor.job._next_args or {})))
    assert [item async for item in again.listing(cursor=state)] == [4]
    assert dict(again.asked[0].params) == {"after": "b"}


async def test_a_run_that_came_no_further_burns_its_attempt() -> None:
    """Else it would be run again at once, for ever."""
    for vendor, time_s in ((Vendor([]), -1.0), (Vendor([DeadlineExceededError("no time")]), 1000.0)):
        vendor.job = run_of(a_job("sync"))
        with pytest.raises(DeadlineExceededError) as late:
            _ = [item async for item in vendor.listing(time_s=time_s)]
        assert isinstance(outcome_of_exception(late.value, draw=0.5), Retry)


async def test_unreachable_page_fails_the_job() -> None:
    error = CallFailedError("gone", category="permanent_request")
    vendor = Vendor([page(1, after_cursor="a"), error])
    vendor.job = run_of(a_job("sync"))
    with pytest.raises(CallFailedError) as failed:
        _ = [item async for item in vendor.listing()]
    assert failed.value is error
