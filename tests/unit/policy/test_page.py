"""Where the items are, and how the next page is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from fairlead.policy.feedback.reply import Reply
from fairlead.policy.page import (
    Asked,
    ByCursor,
    ByLast,
    ByLink,
    ByOffset,
    ByPageInfo,
    LeadsElsewhere,
    Pages,
)

URL = "https://api.example.com/items"


def reply(body: object = None, **headers: str) -> Reply:
    return Reply(200, headers, body)


@pytest.mark.parametrize(
    ("link", "following"),
    [
        (f'<{URL}?page=2>; rel="next"', f"{URL}?page=2"),
        (f'<{URL}?page=1>; rel="previous", <{URL}?page=3>; rel="next"', f"{URL}?page=3"),
        (f"<{URL}?page=2>; rel=next", f"{URL}?page=2"),
        (f'<{URL}?page=2>; title="a"; rel="last next"', f"{URL}?page=2"),
        ("</items?page=2>; rel=next", f"{URL}?page=2"),
        (f'<{URL}?page=2&access_token=abc>; rel="next"', f"{URL}?page=2"),
        (f"<{URL}?Access%5FToken=abc>; rel=next", URL),
        (f"<{URL}?page_token=a%2Fb&sig=c&token=d>; rel=next", f"{URL}?page_token=a%2Fb&sig=c&token=d"),
        (f'<{URL}?page=1>; rel="previous"', None),
        ("", None),
        ("<" * 5000, None),
    ],
)
def test_the_header_link(link: str, following: str | None) -> None:
    found = ByLink().following(Asked(URL), reply([1], Link=link))
    assert (found and found.url) == following


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
        with pytest.raises(LeadsElsewhere) as told:
            ByLink().following(Asked(URL), reply([1], Link=f"<{elsewhere}>; rel=next"))
        assert "evil" not in str(told.value), "what a stranger wrote is not repeated"
    with pytest.raises(LeadsElsewhere):
        ByLink(next="next").following(Asked(URL), reply({"next": elsewhere}))


@pytest.mark.parametrize(
    ("told", "following"),
    [
        ([{"rel": "self", "href": URL}, {"rel": "next", "href": f"{URL}?offset=2"}], f"{URL}?offset=2"),
        ("/services/data/query/01g-2000", "https://api.example.com/services/data/query/01g-2000"),
        ([{"rel": "self", "href": URL}], None),
        (None, None),
        ({"rel": "next"}, None),
        ([{"rel": "next"}], None),
    ],
)
def test_a_link_in_the_answer(told: object, following: str | None) -> None:
    found = ByLink(next="links", items="items").following(Asked(URL), reply({"links": told}))
    assert (found and found.url) == following


@pytest.mark.parametrize(
    ("cursor", "told"),
    [("MTAw", "MTAw"), (7, "7"), ("", None), (None, None), (True, None), (10**18, None), ("a\n", None)],
)
def test_a_cursor(cursor: object, told: str | None) -> None:
    way = ByCursor(items="results", cursor="paging.next.after", param="after")
    answer = reply({"results": [1, 2], "paging": {"next": {"after": cursor}}})
    found = way.following(Asked(URL, {"limit": "2"}), answer)
    assert (found and dict(found.params)) == (told and {"limit": "2", "after": told})
    assert way.found(answer) == [1, 2]


def test_the_last_id() -> None:
    way = ByLast(items="data")
    found = way.following(Asked(URL), reply({"data": [{"id": "a"}, {"id": "b"}], "has_more": True}))
    assert found == Asked(URL, {"starting_after": "b"})
    for last in ({"data": [{"id": "b"}], "has_more": False}, {"data": [], "has_more": True}, {}, None):
        assert way.following(Asked(URL), reply(last)) is None


def test_an_offset() -> None:
    way = ByOffset(items="results", total="paging.total")
    page = {"results": [1, 2], "paging": {"total": 5}}
    assert way.following(Asked(URL), reply(page)) == Asked(URL, {"offset": "2"})
    assert way.following(Asked(URL, {"offset": "2"}), reply(page)) == Asked(URL, {"offset": "4"})
    assert way.following(Asked(URL, {"offset": "3"}), reply(page)) is None
    assert way.following(Asked(URL, {"offset": "-1"}), reply(page)) is None
    assert way.following(Asked(URL, {"offset": ["2", "4"]}), reply(page)) is None
    assert way.following(Asked(URL), reply({"results": [1]})) is None
    bare = ByOffset()
    assert bare.following(Asked(URL), reply([1, 2, 3])) == Asked(URL, {"offset": "3"})
    assert bare.following(Asked(URL, {"offset": "3"}), reply([])) is None


def test_page_info() -> None:
    way = ByPageInfo(items="data.orders.nodes", page_info="data.orders.pageInfo")

    def page(**info: Any) -> Reply:
        return reply({"data": {"orders": {"nodes": [1], "pageInfo": info}}})

    asked = Asked(URL, variables={"first": 50})
    found = way.following(asked, page(hasNextPage=True, endCursor="c"))
    assert found == Asked(URL, variables={"first": 50, "after": "c"})
    assert way.following(asked, page(hasNextPage=False, endCursor="c")) is None
    assert way.following(asked, page(hasNextPage=True)) is None
    assert way.following(asked, reply("no object")) is None
    assert way.found(page()) == [1]


def test_the_kind_says_which() -> None:
    ways: TypeAdapter[Any] = TypeAdapter(Pages)
    assert isinstance(ways.validate_python({"kind": "offset"}), ByOffset)
    for wrong in ({}, {"kind": "other"}, {"kind": "cursor"}, {"kind": "link", "more": "x"}):
        with pytest.raises(ValidationError):
            ways.validate_python(wrong)
