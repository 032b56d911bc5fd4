"""Where the items are, and how the next page is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.pagination import (
    CursorPagination,
    LastIdPagination,
    LinkPagination,
    NextPageError,
    NextPageHostError,
    OffsetPagination,
    PageInfoPagination,
    PageRequest,
    PaginationConfig,
)

URL = "https://api.example.com/items"


def outcome(call: Callable[[], Any]) -> Any:
    """Return what *call* gives, or the class of the error that it raises."""
    try:
        return call()
    except NextPageError:
        return NextPageError


def reply(body: object = None, **headers: str) -> RawResponse:
    return RawResponse(200, headers, body)


@pytest.mark.parametrize(
    ("link", "following"),
    [
        (f'<{URL}?page=2>; rel="next"', f"{URL}?page=2"),
        (f'<{URL}?page=1>; rel="previous", <{URL}?page=3>; rel="next"', f"{URL}?page=3"),
        (f"<{URL}?page=2>; rel=next", f"{URL}?page=2"),
        (f'<{URL}?page=2>; title="a"; rel="last next"', f"{URL}?page=2"),
        ("</items?page=2>; rel=next", f"{URL}?page=2"),
        (f'<{URL}?page=2>; title="a \\"b\\", <c>; rel=prev"; REL="Next"', f"{URL}?page=2"),
        (f"<{URL}?page=2>; title*=UTF-8'de'n%c3%a4chste; x-count=5;; hreflang=de; rel=next", f"{URL}?page=2"),
        (f'<{URL}?page=2&access_token=abc>; rel="next"', f"{URL}?page=2"),
        (f"<{URL}?Access%5FToken=abc>; rel=next", URL),
        (f"<{URL}?page_token=a%2Fb&sig=c&api_key=d>; rel=next", f"{URL}?page_token=a%2Fb"),
        (f'<{URL}?page=1>; rel="previous"', None),
        ("", None),
        ("<" * 5000, None),
        (f"<{'x' * 5000}>; rel=next", NextPageError),
    ],
)
def test_the_header_link(link: str, following: str | type[NextPageError] | None) -> None:
    request = outcome(lambda: LinkPagination().next_request(PageRequest(URL), reply([1], Link=link)))
    assert (request.url if isinstance(request, PageRequest) else request) == following


TOKEN = st.sampled_from(["!", "#$%&'*", "+-.^_`", "|~09", "azAZ", "title*", "relation", "re"])
QUOTABLE = st.sampled_from([",", ";", "=", "<", ">", '"', "\\", "<b>; rel", 'a "b\\', " ", "~", ""])
QUOTED = st.tuples(QUOTABLE, QUOTABLE).map(
    lambda texts: '"' + re.sub(r'(["\\])', r"\\\1", "".join(texts)) + '"'
)
BLANK = st.sampled_from(["", " ", "\t", " \t"])
PARAMETER = st.tuples(BLANK, BLANK, TOKEN, BLANK, BLANK, TOKEN | QUOTED)
PARAMETERS = st.lists(PARAMETER.map(lambda parts: "{}; {}{}{}={}{}".format(*parts)), max_size=3).map("".join)


@given(PARAMETERS, PARAMETERS, PARAMETERS, st.sampled_from(["next", '"next"', '"last NEXT"', '"ne\\xt"']))
def test_header_link_of_the_grammar_is_read(other: str, text_before: str, text_after: str, rel: str) -> None:
    link = f"<{URL}?page=9>{other}; rel=prev , <{URL}?page=2>{text_before};Rel={rel}{text_after}"
    following = LinkPagination().next_request(PageRequest(URL), reply([1], Link=link))
    assert following is not None
    assert following.url == f"{URL}?page=2"


def test_a_next_link_keeps_the_credentials_that_its_caller_asked_with_or_keeps() -> None:
    following = f"{URL}?token=b&sig=c"
    answer = reply([1], Link=f"<{following}>; rel=next")
    for pagination, request in (
        (LinkPagination(keep=("token", "sig")), PageRequest(URL)),
        (LinkPagination(), PageRequest(f"{URL}?sig=a&token=")),
    ):
        next_request = pagination.next_request(request, answer)
        assert next_request is not None
        assert next_request.url == following


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/items",
        "http://api.example.com/items",
        "https://api.example.com:444/items",
        "//evil.example/",
        "https://api.example.com:x/",
        "https://api.example.com@evil.example/",
        "https://api.example.com.evil.example/",
        "https://[::1/",
        "file:///etc/passwd",
        "https://api.example.com/" + "x" * 5000,
    ],
)
def test_a_list_that_goes_on_elsewhere_has_not_ended(elsewhere: str) -> None:
    """V9: the credential is not told to another host, and nobody takes the list for whole."""
    if len(elsewhere) < 4096:  # a longer one is no link
        with pytest.raises(NextPageHostError) as error:
            LinkPagination().next_request(PageRequest(URL), reply([1], Link=f"<{elsewhere}>; rel=next"))
        assert "evil" not in str(error.value), "what a stranger wrote is not repeated"
    with pytest.raises(NextPageHostError):
        LinkPagination(next="next").next_request(PageRequest(URL), reply({"next": elsewhere}))


@pytest.mark.parametrize(
    ("link", "following"),
    [
        ([{"rel": "self", "href": URL}, {"rel": "next", "href": f"{URL}?offset=2"}], f"{URL}?offset=2"),
        ("/services/data/query/01g-2000", "https://api.example.com/services/data/query/01g-2000"),
        ([{"rel": "self", "href": URL}], None),
        (None, None),
        (False, None),
        ([{"rel": "self"}] * 40 + [{"rel": "next", "href": f"{URL}?offset=3"}], f"{URL}?offset=3"),
        ({"rel": "next"}, NextPageError),
        ([{"rel": "next"}], NextPageError),
    ],
)
def test_a_link_in_the_answer(link: object, following: str | type[NextPageError] | None) -> None:
    pagination = LinkPagination(next="links", items="items")
    next_request = outcome(lambda: pagination.next_request(PageRequest(URL), reply({"links": link})))
    assert (next_request.url if isinstance(next_request, PageRequest) else next_request) == following


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        ("MTAw", "MTAw"),
        (7, "7"),
        (1_812_000_000_000_000_000, "1812000000000000000"),
        ("", None),
        (None, None),
        (False, None),
        *((odd, NextPageError) for odd in (True, 10**200, 1.5, -1, "a\n", "x" * 5000, ["a"])),
    ],
)
def test_a_cursor(cursor: object, expected: str | type[NextPageError] | None) -> None:
    pagination = CursorPagination(items="results", cursor="paging.next.after", param="after")
    answer = reply({"results": [1, 2], "paging": {"next": {"after": cursor}}})
    next_request = outcome(lambda: pagination.next_request(PageRequest(URL, {"limit": "2"}), answer))
    assert (
        next_request.params.get("after") if isinstance(next_request, PageRequest) else next_request
    ) == expected
    assert pagination.page_items(answer) == [1, 2]


def test_the_last_id() -> None:
    pagination = LastIdPagination(items="data")
    next_request = pagination.next_request(
        PageRequest(URL), reply({"data": [{"id": "a"}, {"id": "b"}], "has_more": True})
    )
    assert next_request == PageRequest(URL, {"starting_after": "b"})
    for last in ({"data": [{"id": "b"}], "has_more": False}, {"data": [], "has_more": False}):
        assert pagination.next_request(PageRequest(URL), reply(last)) is None
    odd: list[dict[str, Any]] = [{"data": [{"id": "b"}], "has_more": "yes"}, {"data": [], "has_more": True}]
    for cut in (*odd, {"data": [{}], "has_more": True}, {"data": [{"id": "b"}], "more": True}, {}, None):
        assert outcome(lambda cut=cut: pagination.next_request(PageRequest(URL), reply(cut))) is NextPageError


def test_an_offset() -> None:
    pagination = OffsetPagination(items="results", total="paging.total")
    page = {"results": [1, 2], "paging": {"total": 5}}
    assert pagination.next_request(PageRequest(URL), reply(page)) == PageRequest(URL, {"offset": "2"})
    assert pagination.next_request(PageRequest(URL, {"offset": "2"}), reply(page)) == PageRequest(
        URL, {"offset": "4"}
    )
    assert pagination.next_request(PageRequest(URL, {"offset": "3"}), reply(page)) is None
    assert (
        pagination.next_request(PageRequest(URL), reply({"results": [1], "paging": {"total": "1"}})) is None
    )
    assert pagination.next_request(PageRequest(URL), reply({"results": [1]})) == PageRequest(
        URL, {"offset": "1"}
    ), "no total"
    assert pagination.next_request(PageRequest(URL, {"offset": "5"}), reply({**page, "results": []})) is None
    for request, answer in (
        *((PageRequest(URL), {"results": [], "paging": {"total": total}}) for total in (5, None, -1, "all")),
        (PageRequest(URL, {"offset": "-1"}), page),
    ):
        assert outcome(lambda a=request, b=answer: pagination.next_request(a, reply(b))) is NextPageError
    bare = OffsetPagination()
    assert bare.next_request(PageRequest(URL), reply([1, 2, 3])) == PageRequest(URL, {"offset": "3"})
    assert bare.next_request(PageRequest(URL, {"offset": "3"}), reply([])) is None


def test_page_info() -> None:
    pagination = PageInfoPagination(items="data.orders.nodes", page_info="data.orders.pageInfo")

    def page(**info: Any) -> RawResponse:
        return reply({"data": {"orders": {"nodes": [1], "pageInfo": info}}})

    request = PageRequest(URL, variables={"first": 50})
    next_request = pagination.next_request(request, page(hasNextPage=True, endCursor="c"))
    assert next_request == PageRequest(URL, variables={"first": 50, "after": "c"})
    assert pagination.next_request(request, page(hasNextPage=False, endCursor="c")) is None
    for cut in (page(hasNextPage=True), page(), reply("no object")):
        assert outcome(lambda cut=cut: pagination.next_request(request, cut)) is NextPageError
    assert pagination.page_items(page()) == [1]


@pytest.mark.parametrize(
    "answer",
    [
        RawResponse(200, text="<html>"),
        *(reply(body) for body in (None, {}, {"items": None}, {"items": {"id": 1}}, {"items": ""})),
    ],
)
def test_an_answer_without_a_list_is_no_empty_page(answer: RawResponse) -> None:
    for pagination in (
        LinkPagination(items="items"),
        OffsetPagination(items="items", total="total"),
        LastIdPagination(items="items"),
    ):
        assert outcome(lambda pagination=pagination: pagination.page_items(answer)) is NextPageError
        assert pagination.page_items(RawResponse(204)) == (), "no content"


def test_the_kind_says_which() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(PaginationConfig)
    assert isinstance(adapter.validate_python({"kind": "offset"}), OffsetPagination)
    for wrong in ({}, {"kind": "other"}, {"kind": "cursor"}, {"kind": "link", "more": "x"}):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)
