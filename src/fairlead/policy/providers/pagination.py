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
from fairlead.policy.providers.origin import is_callable_url, origin_of
from fairlead.policy.providers.profile_parts import ConfigTable, FieldPath
from fairlead.policy.reasons import call_reasons

LONGEST_CURSOR = 4096
# RFC 8288 §3: `<address>`, then parameters; a parameter's value is a token or a quoted string.
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
class PageRequest:
    """The request for one page of a list: address, query parameters and variables of a GraphQL query.

    Its repr shows none of them, because each may contain a credential.
    """

    url: str = field(repr=False)
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict, repr=False)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)


class NextPageError(ValueError):
    """A list that may not have ended and cannot be continued. The message repeats nothing of the response."""

    reason = call_reasons.NEXT_PAGE_UNREADABLE.code


class NextPageHostError(NextPageError):
    """The address of the next page leads to another host or cannot be called. The message does not repeat it."""

    reason = call_reasons.LEADS_ELSEWHERE.code


class _PaginationTable(ConfigTable):
    items: FieldPath | None = Field(
        default=None,
        description="Path of the list of items in the response. Default: the response itself is the list.",
    )

    def page_items(self, response: RawResponse) -> Sequence[Any]:
        """Return the items of one page; none if the response has no content (204).

        Raises:
            NextPageError: There is nothing under the path `items`, or it is not a list.
        """
        if response.status == 204:
            return ()
        value = response.body if self.items is None else value_at(response.body, self.items)
        if isinstance(value, list):
            return value
        raise NextPageError("the response has no list under the path of the items")


class LinkPagination(_PaginationTable):
    """The response contains the address of the next page: in the header Link (RFC 8288), or in the body."""

    kind: Literal["link"] = "link"
    next: FieldPath | None = Field(
        default=None,
        description="Path of the address of the next page in the body: a text, or a list of objects with rel "
        "and href. Default: the header Link.",
    )
    keep: tuple[ParamName, ...] = Field(
        default=(),
        max_length=8,
        description="Query parameters of that address that are sent although they are named like a "
        "credential "
        "(access_token, api_key, apikey, key, sig, token). Default: those that the first request had.",
    )

    def next_request(self, request: PageRequest, response: RawResponse) -> PageRequest | None:
        """Return the request for the page after *response*; None if it was the last page.

        Raises:
            NextPageHostError: The address is on another host, or cannot be called.
            NextPageError: The response names a next page in a form that cannot be read.
        """
        address = (
            _linked_address(response) if self.next is None else _address(value_at(response.body, self.next))
        )
        if not address:
            return None
        url = _joined(request.url, address)
        if origin_of(url) != origin_of(request.url):
            raise NextPageHostError("the next page is said to be on another host")
        if not is_callable_url(url):
            raise NextPageHostError("the address of the next page cannot be called")
        return PageRequest(_without_credentials(url, request, self.keep))


class CursorPagination(_PaginationTable):
    """The response contains a cursor, which becomes a parameter of the next request."""

    kind: Literal["cursor"] = "cursor"
    cursor: FieldPath = Field(
        description="Path of the cursor in the response; absent, null or empty on the last page."
    )
    param: ParamName = Field(description="Query parameter that carries the cursor.")

    def next_request(self, request: PageRequest, response: RawResponse) -> PageRequest | None:
        """Return the request for the page after *response*; None if it was the last page.

        Raises:
            NextPageError: The cursor is too long or is no text or number.
        """
        cursor = _cursor(value_at(response.body, self.cursor))
        return None if cursor is None else PageRequest(request.url, {**request.params, self.param: cursor})


class LastIdPagination(_PaginationTable):
    """The id of the last item becomes a parameter of the next request."""

    kind: Literal["last_id"] = "last_id"
    id: FieldPath = Field(default="id", description="Path of the id in an item. Default id.")
    has_more: FieldPath = Field(
        default="has_more",
        description="Path of the boolean in the response that says whether there is another page. "
        "Default has_more.",
    )
    param: ParamName = Field(
        default="starting_after", description="Query parameter that carries the id. Default starting_after."
    )

    def next_request(self, request: PageRequest, response: RawResponse) -> PageRequest | None:
        """Return the request for the page after *response*; None if it was the last page.

        Raises:
            NextPageError: The response does not say whether there is more, or its last item has no id.
        """
        if not _has_more(value_at(response.body, self.has_more)):
            return None
        items = self.page_items(response)
        last_id = _cursor(value_at(items[-1], self.id)) if items else None
        if last_id is None:
            raise NextPageError("the response says that there is more, and its last item has no id")
        return PageRequest(request.url, {**request.params, self.param: last_id})


class OffsetPagination(_PaginationTable):
    """The number of items read so far becomes a parameter of the next request."""

    kind: Literal["offset"] = "offset"
    param: ParamName = Field(
        default="offset", description="Query parameter that carries the offset. Default offset."
    )
    total: FieldPath | None = Field(
        default=None,
        description="Path of the number of all items in the response. Default: a page without items is the "
        "last.",
    )

    def next_request(self, request: PageRequest, response: RawResponse) -> PageRequest | None:
        """Return the request for the page after *response*; None if it was the last page.

        Raises:
            NextPageError: The request's offset is no number, or a page before `total` has no items.
        """
        count = len(self.page_items(response))
        current_offset = request.params.get(self.param, "0")
        if not isinstance(current_offset, str) or not re.fullmatch(r"[0-9]{1,12}", current_offset):
            raise NextPageError(f"the parameter {self.param} of the request is not a number to count from")
        offset = int(current_offset) + count
        total = None if self.total is None else _total(value_at(response.body, self.total))
        if not count and self.total is not None and (total is None or offset < total):
            raise NextPageError("the response has no items, and does not say that these were all")
        if not count or (total is not None and offset >= total):
            return None
        return PageRequest(request.url, {**request.params, self.param: str(offset)})


class PageInfoPagination(_PaginationTable):
    """A GraphQL connection (Relay) has ``pageInfo`` beside its items; its cursor becomes a query variable."""

    kind: Literal["page_info"] = "page_info"
    page_info: FieldPath = Field(description="Path of pageInfo in the response.")
    variable: ParamName = Field(
        default="after", description="Variable of the query that carries the cursor. Default after."
    )

    def next_request(self, request: PageRequest, response: RawResponse) -> PageRequest | None:
        """Return the request for the page after *response*; None if it was the last page.

        Raises:
            NextPageError: pageInfo lacks hasNextPage, or endCursor although there is another page.
        """
        page_info = value_at(response.body, self.page_info)
        has_next_page = value_at(page_info, "hasNextPage")
        if not isinstance(has_next_page, bool):
            raise NextPageError("the response has no pageInfo with hasNextPage: ask for it in the query")
        if not has_next_page:
            return None
        cursor = _cursor(value_at(page_info, "endCursor"))
        if cursor is None:
            raise NextPageError("the response says that there is more, and has no endCursor")
        return PageRequest(request.url, request.params, {**request.variables, self.variable: cursor})


PaginationConfig = Annotated[
    LinkPagination | CursorPagination | LastIdPagination | OffsetPagination | PageInfoPagination,
    Field(discriminator="kind"),
]
"""How an API paginates its lists. In settings and profiles, ``kind`` selects the class."""


def value_at(value: object, path: str) -> object:
    """Return what *value*, a JSON document, has under *path*; None if a part of the path is missing.

    Args:
        value: A parsed JSON document.
        path: Names of nested objects, separated by dots.

    >>> value_at({"paging": {"next": {"after": "x"}}}, "paging.next.after")
    'x'
    """
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _cursor(value: object) -> str | None:
    """Return *value* as the text of a cursor; None if it is absent, null, false or empty.

    Raises:
        NextPageError: It is too long, or neither a text nor a whole number.
    """
    if value is None or value is False or value == "":
        return None
    if isinstance(value, int) and value is not True and 0 <= value < _LARGEST_ID:
        return str(value)
    if isinstance(value, str) and len(value) <= LONGEST_CURSOR and value.isprintable():
        return value
    raise NextPageError("the cursor of the next page is too long, or of no form that can be sent")


def _has_more(value: object) -> bool:
    """Return *value* if it is a boolean; raise NextPageError otherwise."""
    if isinstance(value, bool):
        return value
    raise NextPageError("the response does not say whether there is more")


def _total(value: object) -> int | None:
    """Return the number of all items, or None if it cannot be read."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _linked_address(response: RawResponse) -> str | None:
    """Return the address with rel="next" in the header Link; None if there is none.

    Raises:
        NextPageError: There is one, but it is too long or malformed.
    """
    for value in response.headers.get("link", ()):
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
    """Return the address of the next page from a text, or from a list of objects with rel and href.

    Raises:
        NextPageError: *value* is something else.
    """
    if isinstance(value, list):
        links = [link for link in value if isinstance(link, dict) and link.get("rel") == "next"]
        if not links:
            return None
        value = links[0].get("href", links)
    if value is None or value is False or isinstance(value, str):
        return value or None
    raise NextPageError("the address of the next page is no text")


def _without_credentials(url: str, request: PageRequest, keep: Sequence[str]) -> str:
    """Return *url* without the credentials that some providers repeat in its query.

    The header has the credential already (RFC 6750 §2 allows one of both), and the address of a next page is
    stored and shown.

    Args:
        url: The address of the next page.
        request: The request for the current page; parameters that it had stay.
        keep: Names of other parameters that stay.

    >>> _without_credentials("https://x.example/a?api_key=b&after=1#b", PageRequest("https://x.example/a"), ())
    'https://x.example/a?after=1#b'
    """
    requested = {_name_of(pair) for pair in (*urlsplit(request.url).query.split("&"), *request.params)}
    dropped = _CREDENTIALS - requested - set(keep)
    parts = urlsplit(url)
    pairs = parts.query.split("&")
    rest = [pair for pair in pairs if _name_of(pair) not in dropped]
    return url if len(rest) == len(pairs) else parts._replace(query="&".join(rest)).geturl()


def _name_of(pair: str) -> str:
    """Return the name in *pair*, a ``name=value`` of a query, decoded and in lower case."""
    return unquote(pair.partition("=")[0]).lower()


def _joined(url: str, address: str) -> str:
    """Return *address* resolved against *url*; an empty text if it is too long or malformed."""
    try:
        return urljoin(url, address) if len(address) <= LONGEST_CURSOR else ""
    except ValueError:
        return ""
