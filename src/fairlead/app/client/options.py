"""What a call and a list may be told, looked at before anything is taken for it.

An option that is none, or of a wrong type, would be left out in silence, taken for something else, or end in
an error of Python, which in a job counts as one that may pass.
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
from fairlead.policy.providers.pagination import Asked, Pages
from fairlead.policy.text.names import shown

CLASSES: Mapping[str, int] = {"real-time": 1, "scheduled": 2, "batch": 3}
_BODIES = ("json", "data", "content")

Param = str | int | float | bool | None
Params = Mapping[str, Param | Sequence[Param]]
"""Names and values of a query or a form: None is left out, a list is repeated, True is true."""


class CallOptions(TypedDict, total=False):
    """What a call may be told besides its path; None is as if it were not said.

    *params*: of the query; None is left out, a list is repeated. One of *json*, *data* (a form, written as
    params are) and *content* (bytes, or a text; JSON's null, too) is its body. *headers*: none that carries
    the credential. *api*: which of the provider's APIs. *cost*, *operation*: for its limits. *priority*: a
    class, 1 first, or a name: real-time, scheduled, batch. *wait_s*: how long it may wait for its limits,
    default till its deadline, in a job 2 (`inline_wait_s`). *deadline_s*: for all of it, default as its
    connection has it, or 60. *idempotent*: it may be sent twice though its method says no. *max_body_bytes*
    of the answer, default 16 MiB, never None. Any other, or one of another type, is refused: InvalidInputError.
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
    """What an option can be. *plain*: the types that most are of; *wider*: they and their like."""

    plain: frozenset[type]
    wider: tuple[type, ...]
    what: str
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
_FLAG = Kind(frozenset({bool, _NONE}), (), "True or False", "leave it out for what its method says")
_ANY = Kind(frozenset({bool}), (object,), "", "")  # is looked at where it is used
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
_NAMED = re.compile(r"\b(?:query|mutation|subscription)\s+([A-Za-z_][A-Za-z0-9_]{0,63})")
_VALUES = re.compile(r'"[^"]*"|[0-9]+')
_PAGINATIONS = get_args(Pagination)
_WAYS = (Mapping, *get_args(get_args(Pages)[0]))
_ELSEWHERE = {
    "timeout": "give `deadline_s`: it is for all of the call, token, waits and retries",
    "files": "give the body as `content`, with its Content-Type among the headers",
    "auth": "leave it out: the credential of the connection is added",
    "cookies": "give them in the headers, as Cookie",
    "follow_redirects": "leave it out: redirects are not followed; call the address that answers",
    "extensions": "leave it out: calls have none",
}
"""What other libraries call by a name of theirs, and what is there instead."""


def check_options(options: Mapping[str, object], key: ConnectionKey) -> None:
    """InvalidInputError for an option that calls do not have, and for one of a type that it cannot be of."""
    for name, value in options.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise _unknown(name, key)
        if type(value) not in kind.plain:
            check_kind(name, value, kind, key)


def check_kind(name: str, value: object, kind: Kind, key: ConnectionKey) -> None:
    """InvalidInputError, naming *name*, for a *value* that is not of *kind*."""
    if type(value) not in kind.plain and (isinstance(value, bool) or not isinstance(value, kind.wider)):
        raise _wrong(f"{name} must be {kind.what}, not {type(value).__name__}", kind.hint, key)


def _unknown(name: str, key: ConnectionKey) -> InvalidInputError:
    alike = get_close_matches(name, sorted(_KINDS), n=1)
    other = f"{alike[0]} is one" if alike else f"there are {', '.join(sorted(_KINDS))}"
    return _wrong(f"calls have no option {shown(name)}", _ELSEWHERE.get(name, other), key)


def check_no_body(options: Mapping[str, object], key: ConnectionKey, what: str) -> None:
    """InvalidInputError for a body where *what* makes it: one of the two would be left out in silence."""
    given = bodies_in(options)
    if given:
        hint = f"leave {given[0]} out, or send the call with post()"
        raise _wrong(f"{what} makes the body itself, and {given[0]} is another", hint, key)


def bodies_in(options: Mapping[str, object]) -> list[str]:
    """Which of the bodies are given."""
    return [name for name in _BODIES if options.get(name) is not None]


def check_graphql(query: object, variables: object, key: ConnectionKey) -> None:
    """InvalidInputError for what is no text of GraphQL, and for variables that are not given by name."""
    check_kind("the query", query, TEXT, key)
    check_kind("variables", variables, MAPPING, key)
    if isinstance(variables, Mapping):
        for name in variables:
            check_kind("the name of a variable", name, TEXT, key)


def graphql_options(query: str, variables: Mapping[str, Any], options: CallOptions) -> CallOptions:
    """*options* for a call of GraphQL; one that changes nothing may be repeated."""
    told: CallOptions = {**options, "json": {"query": query, "variables": dict(variables)}}
    if told.get("api") is None:
        told["api"] = "graphql"
    if told.get("idempotent") is None:
        told["idempotent"] = _is_query(query)
    if told.get("operation") is None:
        told["operation"] = _operation_of(query)
    return told


def _operation_of(query: str) -> str:
    """Return the name of a GraphQL operation, or a digest of its text without the values in it."""
    if named := _NAMED.search(query):
        return named[1]
    return f"graphql.{blake2b(_VALUES.sub('', query).encode('utf-8', 'replace'), digest_size=6).hexdigest()}"


def _is_query(text: str) -> bool:
    """Whether a GraphQL document holds no mutation; a comment or an odd form counts as one."""
    return "mutation" not in text and "subscription" not in text


def check_list(path: object, pages: object, cursor: object, pagination: object, key: ConnectionKey) -> None:
    """InvalidInputError for what `Client.paginate` would take for something else."""
    check_kind("path", path, TEXT, key)
    if cursor is not None:
        asked_again(cursor, key)
    if pagination not in _PAGINATIONS:
        raise _wrong(f"{shown(pagination)} is no pagination", f"give one of {', '.join(_PAGINATIONS)}", key)
    if pages is not None and not isinstance(pages, _WAYS):
        what = f"pages must be a mapping, or a table of pages, not {type(pages).__name__}"
        raise _wrong(what, 'say how, as {"kind": "link"} does it', key)


def asked_again(cursor: object, key: ConnectionKey) -> Asked:
    """The request that *cursor* of an earlier Paginator is. InvalidInputError for what is none."""
    told = cursor if isinstance(cursor, Mapping) else {}
    url, params, variables = told.get("url"), told.get("params") or {}, told.get("variables") or {}
    if isinstance(url, str) and isinstance(params, Mapping) and isinstance(variables, Mapping):
        return Asked(url, params, variables)
    raise _wrong("cursor is not one of a Paginator", "give `paginator.cursor` unchanged, or None", key)


def class_of(priority: str | int | None, key: ConnectionKey) -> int | None:
    """The number of a class of calls. InvalidInputError for what is none."""
    if priority is None:
        return None
    if isinstance(priority, str) and priority in CLASSES:
        return CLASSES[priority]
    if isinstance(priority, int) and not isinstance(priority, bool) and 1 <= priority <= MAX_CLASSES:
        return priority
    hint = f"use one of {', '.join(CLASSES)}, or a number from 1 to {MAX_CLASSES}"
    raise _wrong(f"{priority!r} is no priority", hint, key)


def check_bounds(deadline_s: object, max_body_bytes: object, key: ConnectionKey) -> None:
    """InvalidInputError for a deadline that is none, or has no end, and for a size that is none."""
    if deadline_s is not None and not (
        isinstance(deadline_s, int | float)
        and not isinstance(deadline_s, bool)
        and 0 < deadline_s <= MAX_LEASE_S  # NaN fails it, too
    ):
        hint = f"give seconds: above 0, and {MAX_LEASE_S:g} at most"
        raise _wrong(f"deadline_s is {deadline_s!r}", hint, key)
    if not isinstance(max_body_bytes, int) or isinstance(max_body_bytes, bool) or max_body_bytes < 0:
        raise _wrong(f"max_body_bytes is {max_body_bytes!r}", "give a number of bytes, 0 or more", key)


def _wrong(what: str, hint: str, key: ConnectionKey) -> InvalidInputError:
    return InvalidInputError(what, tenant=key.tenant, provider=key.provider, hint=hint)
