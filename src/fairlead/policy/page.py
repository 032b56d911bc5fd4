"""How vendors hand out a list page by page: where the items are, and how the page after is asked for (C8).

An answer is a stranger's: a cursor is a text of bounded length, and an address of a next page is only taken
where it leads to the host and scheme that were asked; the caller's token goes nowhere else. A list that is
said to go on elsewhere has not ended: that is told (LeadsElsewhere).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urljoin, urlsplit

from pydantic import Field

from fairlead.policy.feedback.reply import Reply
from fairlead.policy.origin import is_address, origin_of
from fairlead.policy.profile_parts import FieldPath, Table

LONGEST_CURSOR = 4096
_LINK = re.compile(r'<([^<>"\s]{1,4096})>((?:\s*;\s*[a-z*]{1,20}\s*=\s*(?:"[^"]{0,200}"|[^\s;,"]{1,200}))*)')
_REL = re.compile(r'rel\s*=\s*(?:"([^"]{0,200})"|([^\s;,"]{1,200}))')
ParamName = Annotated[str, Field(strict=True, pattern=r"\A[A-Za-z_][A-Za-z0-9_.$\[\]-]{0,63}\z")]


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that a page is the answer to, not shown. *variables*: of a GraphQL query."""

    url: str = field(repr=False)
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict, repr=False)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)


class LeadsElsewhere(ValueError):
    """The address of the next page is on another host, or none that can be read. Says nothing of it."""


class _Paged(Table):
    items: FieldPath | None = Field(
        default=None, description="Where the items stand in an answer. Default: the answer is the list."
    )

    def found(self, reply: Reply) -> Sequence[Any]:
        """The items of one page; none where there is no list."""
        value = reply.body if self.items is None else at(reply.body, self.items)
        return value if isinstance(value, list) else ()


class ByLink(_Paged):
    """The address of the next page: in the header Link (RFC 8288, default), or in the answer."""

    kind: Literal["link"] = "link"
    next: FieldPath | None = Field(
        default=None,
        description="Where it stands in the answer: a text, or a list of objects with rel and href. "
        "Default: the header Link.",
    )

    def following(self, asked: Asked, reply: Reply) -> Asked | None:
        """The request for the next page; None after the last one. LeadsElsewhere where it is not there."""
        told = _linked(reply) if self.next is None else _address(at(reply.body, self.next))
        if not told:
            return None
        url = _joined(asked.url, told)
        if origin_of(url) != origin_of(asked.url):
            raise LeadsElsewhere("the next page is said to be on another host")
        if not is_address(url):
            raise LeadsElsewhere("the address of the next page is none that can be called")
        return Asked(_without_token(url))


class ByCursor(_Paged):
    """A cursor out of the answer becomes a parameter of the next request."""

    kind: Literal["cursor"] = "cursor"
    cursor: FieldPath = Field(description="Where the cursor stands; absent, null or empty after the last.")
    param: ParamName = Field(description="The parameter that it becomes.")

    def following(self, asked: Asked, reply: Reply) -> Asked | None:
        """The request for the next page; None after the last one."""
        cursor = _cursor(at(reply.body, self.cursor))
        return None if cursor is None else Asked(asked.url, {**asked.params, self.param: cursor})


class ByLast(_Paged):
    """The id of the last item becomes a parameter of the next request."""

    kind: Literal["last"] = "last"
    id: FieldPath = Field(default="id", description="Where an item has its id. Default id.")
    more: FieldPath = Field(default="has_more", description="Whether there is more. Default has_more.")
    param: ParamName = Field(default="starting_after", description="Default starting_after.")

    def following(self, asked: Asked, reply: Reply) -> Asked | None:
        """The request for the next page; None after the last one."""
        found = self.found(reply)
        last = _cursor(at(found[-1], self.id)) if found else None
        if last is None or at(reply.body, self.more) is not True:
            return None
        return Asked(asked.url, {**asked.params, self.param: last})


class ByOffset(_Paged):
    """The next request begins after the items that there were."""

    kind: Literal["offset"] = "offset"
    param: ParamName = Field(default="offset", description="Default offset.")
    total: FieldPath | None = Field(
        default=None, description="Where the number of all stands. Default none: a page without items ends."
    )

    def following(self, asked: Asked, reply: Reply) -> Asked | None:
        """The request for the next page; None after the last one."""
        count = len(self.found(reply))
        before = asked.params.get(self.param, "0")
        if not count or not isinstance(before, str) or not re.fullmatch(r"[0-9]{1,12}", before):
            return None
        offset = int(before) + count
        if self.total is not None:
            total = at(reply.body, self.total)
            if not isinstance(total, int) or offset >= total:
                return None
        return Asked(asked.url, {**asked.params, self.param: str(offset)})


class ByPageInfo(_Paged):
    """GraphQL connections (Relay): ``pageInfo`` beside the items, a variable for the cursor."""

    kind: Literal["page_info"] = "page_info"
    page_info: FieldPath = Field(description="Where pageInfo stands.")
    variable: ParamName = Field(default="after", description="Default after.")

    def following(self, asked: Asked, reply: Reply) -> Asked | None:
        """The request for the next page; None after the last one."""
        told = at(reply.body, self.page_info)
        cursor = _cursor(at(told, "endCursor"))
        if cursor is None or at(told, "hasNextPage") is not True:
            return None
        return Asked(asked.url, asked.params, {**asked.variables, self.variable: cursor})


Pages = Annotated[ByLink | ByCursor | ByLast | ByOffset | ByPageInfo, Field(discriminator="kind")]
"""One of the ways; in settings and profiles its ``kind`` says which."""


def at(value: object, path: str) -> object:
    """What stands under *path*, names apart by dots; None where a part of it is missing.

    >>> at({"paging": {"next": {"after": "x"}}}, "paging.next.after")
    'x'
    """
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _cursor(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    if isinstance(value, int) and not 0 <= value < 10**18:  # a longer one may not even become a text
        return None
    text = str(value)
    return text if 0 < len(text) <= LONGEST_CURSOR and text.isprintable() else None


def _linked(reply: Reply) -> str | None:
    for value in reply.headers.get("link", ()):
        for found in _LINK.finditer(value[: 4 * LONGEST_CURSOR]):
            rel = _REL.search(found[2])
            if rel and "next" in (rel[1] or rel[2]).lower().split():
                return found[1]
    return None


def _address(value: object) -> str | None:
    """A text, or the one of a list of links that is the next."""
    if isinstance(value, list):
        links = [each for each in value[:32] if isinstance(each, dict) and each.get("rel") == "next"]
        value = links[0].get("href") if links else None
    return value if isinstance(value, str) else None


def _without_token(url: str) -> str:
    """*url* without a token in its query, where some vendors repeat the caller's: the header has it already
    (RFC 6750 §2: one of both), and the address of a next page is stored and told.

    >>> _without_token("https://x.example/a?access_token=abc&after=1#b")
    'https://x.example/a?after=1#b'
    """
    parts = urlsplit(url)
    pairs = parts.query.split("&")
    kept = [pair for pair in pairs if unquote(pair.partition("=")[0]).lower() != "access_token"]
    return url if len(kept) == len(pairs) else parts._replace(query="&".join(kept)).geturl()


def _joined(url: str, told: str) -> str:
    try:
        return urljoin(url, told) if len(told) <= LONGEST_CURSOR else ""
    except ValueError:
        return ""
