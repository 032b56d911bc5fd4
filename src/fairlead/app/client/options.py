"""The options of calls and lists, checked before anything else happens.

Otherwise a misspelt option or one of a wrong type would be ignored, misread, or end in an error of Python,
which a job would retry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from hashlib import blake2b
from typing import Any, NamedTuple, TypedDict, get_args

from fairlead.app.client.paginator import Pagination
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidInputError
from fairlead.policy.limits.limit import MAX_CLASSES, MAX_LEASE_S
from fairlead.policy.providers.pagination import PageRequest, PaginationConfig
from fairlead.policy.text.names import shown

CLASSES: Mapping[str, int] = {"real-time": 1, "scheduled": 2, "batch": 3}
_BODIES = ("json", "data", "content")

Param = str | int | float | bool | None
Params = Mapping[str, Param | Sequence[Param]]
"""Names and values of a query or a form: None is left out, a list is repeated, True is true."""


class CallOptions(TypedDict, total=False):
    """The options of a call. None is the default of each; other names and types raise InvalidInputError.

    Attributes:
        params: The query. A value None is left out, a list is repeated.
        json: The body as JSON. A call has one of *json*, *data* and *content*; null cannot be sent as *json*,
            but as *content*.
        data: The body as a form, written as *params* are.
        content: The body as bytes or text.
        headers: Further headers, without the one of the credential.
        api: The provider's API. Default: its usual one.
        cost: Units of its limit.
        operation: A name for calls of the same cost.
        priority: A class: ``real-time``, ``scheduled``, ``batch``, or its number from 1.
        wait_s: The longest wait for limits. Default: until its deadline, in a job 2 (`inline_wait_s`).
        deadline_s: Bounds all of the call. Default: the connection's, or 60.
        idempotent: Whether it may be sent twice although its method is not idempotent.
        max_body_bytes: The largest body of the response. Default 16 MiB; never None.
    """

    params: Params
    json: Any
    data: Params
    content: bytes | str
    headers: Mapping[str, str]
    api: str
    cost: float
    operation: str
    priority: str | int
    wait_s: float
    deadline_s: float
    idempotent: bool
    max_body_bytes: int


class Kind(NamedTuple):
    """The type of an option.

    Attributes:
        plain: The exact types of most values, checked first because that is fast.
        wider: All accepted types.
    """

    plain: frozenset[type]
    wider: tuple[type, ...]
    noun: str
    hint: str


_NONE = type(None)
TEXT = Kind(frozenset({str}), (str,), "a text", "give a str")
MAPPING = Kind(frozenset({dict, _NONE}), (Mapping,), "a mapping", "give values by name")
NUMBER = Kind(frozenset({int, float, _NONE}), (int, float), "a number", "give an int or a float")
_PARAMS = MAPPING._replace(hint="give values by name; a list as a value is repeated")
_NAME = Kind(frozenset({str, _NONE}), (str,), "a text", "give its name")
_CONTENT = Kind(
    frozenset({bytes, str, _NONE}), (bytes, str, bytearray, memoryview), "bytes or a text", "give all of it"
)
_FLAG = Kind(frozenset({bool, _NONE}), (), "True or False", "leave it out for the default of its method")
_ANY = Kind(frozenset({bool}), (object,), "", "")  # is checked where it is used
_KINDS: Mapping[str, Kind] = {
    "params": _PARAMS,
    "json": _ANY,
    "data": _PARAMS,
    "content": _CONTENT,
    "headers": MAPPING,
    "api": _NAME,
    "cost": NUMBER,
    "operation": _NAME,
    "priority": _ANY,
    "wait_s": NUMBER,
    "deadline_s": _ANY,
    "idempotent": _FLAG,
    "max_body_bytes": _ANY,
}
_OPERATION_NAME = re.compile(r"\b(?:query|mutation|subscription)\s+([A-Za-z_][A-Za-z0-9_]{0,63})")
_VALUES = re.compile(r'"[^"]*"|[0-9]+')
_PAGINATIONS = get_args(Pagination)
_PAGES_TYPES = (Mapping, *get_args(get_args(PaginationConfig)[0]))
_ELSEWHERE = {
    "timeout": "give `deadline_s`: it is for all of the call, token, waits and retries",
    "files": "give the body as `content`, with its Content-Type among the headers",
    "auth": "leave it out: the credential of the connection is added",
    "cookies": "give them in the headers, as Cookie",
    "follow_redirects": "leave it out: redirects are not followed; call the final URL",
    "extensions": "leave it out: calls have none",
}
"""Options of other libraries, and what to use instead."""


def check_options(options: Mapping[str, object], key: ConnectionKey) -> None:
    """Raise InvalidInputError for an unknown option or a wrong type."""
    for name, value in options.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise _unknown(name, key)
        if type(value) not in kind.plain:
            check_kind(name, value, kind, key)


def check_kind(name: str, value: object, kind: Kind, key: ConnectionKey) -> None:
    """Raise InvalidInputError, which names *name*, unless *value* is of *kind*."""
    if type(value) not in kind.plain and (isinstance(value, bool) or not isinstance(value, kind.wider)):
        raise _wrong(f"{name} must be {kind.noun}, not {type(value).__name__}", kind.hint, key)


def _unknown(name: str, key: ConnectionKey) -> InvalidInputError:
    matches = get_close_matches(name, sorted(_KINDS), n=1)
    other = f"{matches[0]} is one" if matches else f"there are {', '.join(sorted(_KINDS))}"
    return _wrong(f"calls have no option {shown(name)}", _ELSEWHERE.get(name, other), key)


def check_no_body(options: Mapping[str, object], key: ConnectionKey, maker: str) -> None:
    """Raise InvalidInputError for a body in *options*, because *maker* makes the body."""
    bodies = bodies_in(options)
    if bodies:
        hint = f"leave {bodies[0]} out, or send the call with post()"
        raise _wrong(f"{maker} makes the body itself, and {bodies[0]} is another", hint, key)


def bodies_in(options: Mapping[str, object]) -> list[str]:
    """Return the names of the bodies in *options*."""
    return [name for name in _BODIES if options.get(name) is not None]


def check_graphql(query: object, variables: object, key: ConnectionKey) -> None:
    """Raise InvalidInputError unless *query* is a text and *variables* a mapping by name."""
    check_kind("the query", query, TEXT, key)
    check_kind("variables", variables, MAPPING, key)
    if isinstance(variables, Mapping):
        for name in variables:
            check_kind("the name of a variable", name, TEXT, key)


def graphql_options(query: str, variables: Mapping[str, Any], options: CallOptions) -> CallOptions:
    """Return *options* with the body of a GraphQL call. A query is idempotent."""
    result: CallOptions = {**options, "json": {"query": query, "variables": dict(variables)}}
    if result.get("api") is None:
        result["api"] = "graphql"
    if result.get("idempotent") is None:
        result["idempotent"] = _is_query(query)
    if result.get("operation") is None:
        result["operation"] = _operation_of(query)
    return result


def _operation_of(query: str) -> str:
    """Return the name of a GraphQL operation, or a digest of its text without the values in it."""
    if match := _OPERATION_NAME.search(query):
        return match[1]
    return f"graphql.{blake2b(_VALUES.sub('', query).encode('utf-8', 'replace'), digest_size=6).hexdigest()}"


def _is_query(text: str) -> bool:
    """Return whether a GraphQL document has no mutation. The word in a comment counts as one."""
    return "mutation" not in text and "subscription" not in text


def check_list(path: object, pages: object, cursor: object, pagination: object, key: ConnectionKey) -> None:
    """Raise InvalidInputError for arguments that `Client.paginate` would misread."""
    check_kind("path", path, TEXT, key)
    if cursor is not None:
        request_of(cursor, key)
    if pagination not in _PAGINATIONS:
        raise _wrong(f"{shown(pagination)} is no pagination", f"give one of {', '.join(_PAGINATIONS)}", key)
    if pages is not None and not isinstance(pages, _PAGES_TYPES):
        message = f"pages must be a mapping, or a table of pages, not {type(pages).__name__}"
        raise _wrong(message, 'use for example {"kind": "link"}', key)


def request_of(cursor: object, key: ConnectionKey) -> PageRequest:
    """Return the request in *cursor*, which is one of an earlier Paginator.

    Raises:
        InvalidInputError: It is not.
    """
    fields = cursor if isinstance(cursor, Mapping) else {}
    url, params, variables = fields.get("url"), fields.get("params") or {}, fields.get("variables") or {}
    if isinstance(url, str) and isinstance(params, Mapping) and isinstance(variables, Mapping):
        return PageRequest(url, params, variables)
    raise _wrong("cursor is not one of a Paginator", "give `paginator.cursor` unchanged, or None", key)


def class_of(priority: str | int | None, key: ConnectionKey) -> int | None:
    """Return the number of a priority class. Raise InvalidInputError if it is none."""
    if priority is None:
        return None
    if isinstance(priority, str) and priority in CLASSES:
        return CLASSES[priority]
    if isinstance(priority, int) and not isinstance(priority, bool) and 1 <= priority <= MAX_CLASSES:
        return priority
    hint = f"use one of {', '.join(CLASSES)}, or a number from 1 to {MAX_CLASSES}"
    raise _wrong(f"{priority!r} is no priority", hint, key)


def check_bounds(deadline_s: object, max_body_bytes: object, key: ConnectionKey) -> None:
    """Raise InvalidInputError unless the deadline is positive and finite, and the size a number of bytes."""
    if deadline_s is not None and not (
        isinstance(deadline_s, int | float)
        and not isinstance(deadline_s, bool)
        and 0 < deadline_s <= MAX_LEASE_S  # NaN fails it, too
    ):
        hint = f"give seconds: above 0, and {MAX_LEASE_S:g} at most"
        raise _wrong(f"deadline_s is {deadline_s!r}", hint, key)
    if not isinstance(max_body_bytes, int) or isinstance(max_body_bytes, bool) or max_body_bytes < 0:
        raise _wrong(f"max_body_bytes is {max_body_bytes!r}", "give a number of bytes, 0 or more", key)


def _wrong(message: str, hint: str, key: ConnectionKey) -> InvalidInputError:
    return InvalidInputError(message, tenant=key.tenant, provider=key.provider, hint=hint)
