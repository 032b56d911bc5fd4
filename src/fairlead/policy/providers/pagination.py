"""Providers' pagination: where the items of a page are, and how the next page is requested. Spec: C8.

Responses are not trusted. A cursor is a text of bounded length, and the address of a next page is only used
if it has the host and scheme of the request, so that the caller's token goes nowhere else. A list ends only
if the response says so. A response that says that there is more, or cannot be read, and does not name a
usable next page raises NextPageError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urljoin, urlsplit

from pydantic import Field

from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.origin import is_address, origin_of
from fairlead.policy.providers.profile_parts import FieldPath, Table
from fairlead.policy.reasons import call_reasons

LONGEST_CURSOR = 4096
# RFC 8288 §3: `<address>`, then parameters whose values are tokens or quoted strings.
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}"
_QUOTED = r'"(?:[^"\\]|\\.){0,500}+"'
_PARAMETER = (
    rf"\s{{0,8}}+;\s{{0,8}}+(?:({_TOKEN})(?:\s{{0,8}}+=\s{{0,8}}+({_QUOTED}|[^\s;,\"]{{0,500}}+))?+)?+"
)
_LINK = re.compile(rf'<([^<>"\s]{{1,4096}})>((?:{_PARAMETER})*+)')
_PARAMETERS = re.compile(_PARAMETER)
_NEXT_REL = re.compile(r"rel\s{0,8}=\s{0,8}\"?[^\";,]{0,200}\bnext\b", re.IGNORECASE)
_LARGEST_ID = 10**100  # a longer one is not even converted to text
_CREDENTIALS = frozenset({"access_token", "api_key", "apikey", "key", "sig", "token"})
ParamName = Annotated[str, Field(strict=True, pattern=r"\A[A-Za-z_][A-Za-z0-9_.$\[\]-]{0,63}\z")]


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that a page is the answer to, not shown. *variables*: of a GraphQL query."""

    url: str = field(repr=False)
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict, repr=False)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)


class NextPageError(ValueError):
    """A list that may not have ended and cannot be continued. The message repeats nothing of the response."""

    reason = call_reasons.NEXT_PAGE_UNREADABLE.code


class NextPageHostError(NextPageError):
    """The address of the next page is on another host, or none that can be read. Says nothing of it."""

    reason = call_reasons.LEADS_ELSEWHERE.code


class _Paged(Table):
    items: FieldPath | None = Field(
        default=None, description="Where the items stand in an answer. Default: the answer is the list."
    )

    def found(self, reply: RawResponse) -> Sequence[Any]:
        """Return the items of one page; none if the response has no content (204).

        Raises:
            NextPageError: The place of the items is missing or is not a list.
        """
        if reply.status == 204:
            return ()
        value = reply.body if self.items is None else at(reply.body, self.items)
        if isinstance(value, list):
            return value
        raise NextPageError("the answer holds no list where the items should be")


class ByLink(_Paged):
    """The address of the next page: in the header Link (RFC 8288, default), or in the answer."""

    kind: Literal["link"] = "link"
    next: FieldPath | None = Field(
        default=None,
        description="Where it stands in the answer: a text, or a list of objects with rel and href. "
        "Default: the header Link.",
    )
    keep: tuple[ParamName, ...] = Field(
        default=(),
        max_length=8,
        description="Parameters of its address that are kept though they have the name of a credential "
        "(access_token, api_key, apikey, key, sig, token). Default none, but those that were asked with.",
    )

    def following(self, asked: Asked, reply: RawResponse) -> Asked | None:
        """The request for the next page; None after the last one. NextPageHostError where it is not there."""
        told = _linked(reply) if self.next is None else _address(at(reply.body, self.next))
        if not told:
            return None
        url = _joined(asked.url, told)
        if origin_of(url) != origin_of(asked.url):
            raise NextPageHostError("the next page is said to be on another host")
        if not is_address(url):
            raise NextPageHostError("the address of the next page is none that can be called")
        return Asked(_without_credentials(url, asked, self.keep))


class ByCursor(_Paged):
    """A cursor out of the answer becomes a parameter of the next request."""

    kind: Literal["cursor"] = "cursor"
    cursor: FieldPath = Field(description="Where the cursor stands; absent, null or empty after the last.")
    param: ParamName = Field(description="The parameter that it becomes.")

    def following(self, asked: Asked, reply: RawResponse) -> Asked | None:
        """The request for the next page; None after the last one."""
        cursor = _cursor(at(reply.body, self.cursor))
        return None if cursor is None else Asked(asked.url, {**asked.params, self.param: cursor})


class ByLast(_Paged):
    """The id of the last item becomes a parameter of the next request."""

    kind: Literal["last"] = "last"
    id: FieldPath = Field(default="id", description="Where an item has its id. Default id.")
    more: FieldPath = Field(default="has_more", description="Whether there is more. Default has_more.")
    param: ParamName = Field(default="starting_after", description="Default starting_after.")

    def following(self, asked: Asked, reply: RawResponse) -> Asked | None:
        """The request for the next page; None after the last one."""
        if not _has_more(at(reply.body, self.more)):
            return None
        found = self.found(reply)
        last = _cursor(at(found[-1], self.id)) if found else None
        if last is None:
            raise NextPageError("the answer says that there is more, and its last item has no id")
        return Asked(asked.url, {**asked.params, self.param: last})


class ByOffset(_Paged):
    """The next request begins after the items that there were."""

    kind: Literal["offset"] = "offset"
    param: ParamName = Field(default="offset", description="Default offset.")
    total: FieldPath | None = Field(
        default=None, description="Where the number of all stands. Default none: a page without items ends."
    )

    def following(self, asked: Asked, reply: RawResponse) -> Asked | None:
        """The request for the next page; None after the last one."""
        count = len(self.found(reply))
        before = asked.params.get(self.param, "0")
        if not isinstance(before, str) or not re.fullmatch(r"[0-9]{1,12}", before):
            raise NextPageError(f"the parameter {self.param} of the request is not a number to count from")
        offset = int(before) + count
        total = None if self.total is None else _total(at(reply.body, self.total))
        if not count and self.total is not None and (total is None or offset < total):
            raise NextPageError("the answer gives no items, and does not say that these were all")
        if not count or (total is not None and offset >= total):
            return None
        return Asked(asked.url, {**asked.params, self.param: str(offset)})


class ByPageInfo(_Paged):
    """GraphQL connections (Relay): ``pageInfo`` beside the items, a variable for the cursor."""

    kind: Literal["page_info"] = "page_info"
    page_info: FieldPath = Field(description="Where pageInfo stands.")
    variable: ParamName = Field(default="after", description="Default after.")

    def following(self, asked: Asked, reply: RawResponse) -> Asked | None:
        """The request for the next page; None after the last one."""
        told = at(reply.body, self.page_info)
        more = at(told, "hasNextPage")
        if not isinstance(more, bool):
            raise NextPageError("the answer has no pageInfo with hasNextPage: ask for it in the query")
        if not more:
            return None
        cursor = _cursor(at(told, "endCursor"))
        if cursor is None:
            raise NextPageError("the answer says that there is more, and has no endCursor")
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
    """Return *value* as a cursor; None if it is absent, null, false or empty.

    Raises:
        NextPageError: It is another value that cannot be sent as a cursor.
    """
    if value is None or value is False or value == "":
        return None
    if isinstance(value, int) and value is not True and 0 <= value < _LARGEST_ID:
        return str(value)
    if isinstance(value, str) and len(value) <= LONGEST_CURSOR and value.isprintable():
        return value
    raise NextPageError("the cursor of the next page is too long, or of no form that can be sent")


def _has_more(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise NextPageError("the answer does not say whether there is more")


def _total(value: object) -> int | None:
    """Return the number of all items, or None if it cannot be read."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _linked(reply: RawResponse) -> str | None:
    for value in reply.headers.get("link", ()):
        for link in _LINK.finditer(value[: 4 * LONGEST_CURSOR]):
            if "next" in _relations(link[2]):
                return link[1]
        if _NEXT_REL.search(value):
            raise NextPageError("the header Link names a next page, and is too long or of an odd form")
    return None


def _relations(parameters: str) -> list[str]:
    """Return the relation types of the first parameter `rel`; later ones are ignored."""
    for parameter in _PARAMETERS.finditer(parameters):
        if (parameter[1] or "").lower() == "rel":
            return re.sub(r"\\(.)", r"\1", (parameter[2] or "").strip('"')).lower().split()
    return []


def _address(value: object) -> str | None:
    """A text, or the one of a list of links that is the next."""
    if isinstance(value, list):
        links = [link for link in value if isinstance(link, dict) and link.get("rel") == "next"]
        if not links:
            return None
        value = links[0].get("href", links)
    if value is None or value is False or isinstance(value, str):
        return value or None
    raise NextPageError("the address of the next page is no text")


def _without_credentials(url: str, asked: Asked, keep: Sequence[str]) -> str:
    """Return *url* without the credentials that some vendors repeat in its query.

    The header has the credential already (RFC 6750 §2 allows one of both), and the address of a next page is
    stored and shown. Parameters of the request *asked*, and those in *keep*, stay.

    >>> _without_credentials("https://x.example/a?api_key=b&after=1#b", Asked("https://x.example/a"), ())
    'https://x.example/a?after=1#b'
    """
    requested = {_name_of(pair) for pair in (*urlsplit(asked.url).query.split("&"), *asked.params)}
    dropped = _CREDENTIALS - requested - set(keep)
    parts = urlsplit(url)
    pairs = parts.query.split("&")
    rest = [pair for pair in pairs if _name_of(pair) not in dropped]
    return url if len(rest) == len(pairs) else parts._replace(query="&".join(rest)).geturl()


def _name_of(pair: str) -> str:
    return unquote(pair.partition("=")[0]).lower()


def _joined(url: str, told: str) -> str:
    try:
        return urljoin(url, told) if len(told) <= LONGEST_CURSOR else ""
    except ValueError:
        return ""
