"""From what people write to the bytes of a request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict
from urllib.parse import quote, urlencode

from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InputInvalid
from fairlead.policy.gate.limit import MAX_CLASSES, MAX_LEASE_S
from fairlead.policy.names import shown
from fairlead.policy.origin import is_address

CLASSES: Mapping[str, int] = {"real-time": 1, "scheduled": 2, "batch": 3}
_BODIES = ("json", "data", "content")

Param = str | int | float | bool | None
Params = Mapping[str, Param | Sequence[Param]]
"""Names and values of a query or a form: None is left out, a list is repeated, True is true."""


class CallOptions(TypedDict, total=False):
    """What a call may be told besides its path.

    *params*: of the query; None is left out, a list is repeated. One of *json*, *data* (a form, written as
    params are) and *content* (bytes, or a text) is its body. *headers*: none that carries the credential.
    *api*: which of the provider's APIs. *cost*, *operation*: for its limits. *priority*: a class, 1 first, or
    a name: real-time, scheduled, batch. *wait_s*: how long it may wait for its limits, default till its
    deadline, in a job 2 (`inline_wait_s`). *deadline_s*: for all of it, default as its connection has it, or
    60. *repeatable*: it may be sent twice though its method says no. *max_body_bytes* of the answer, default
    16 MiB. Any other is refused: InputInvalid.
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
    repeatable: bool
    max_body_bytes: int


_KNOWN = CallOptions.__optional_keys__
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
    """InputInvalid for an option that calls do not have: it would be left out in silence."""
    unknown = options.keys() - _KNOWN
    if unknown:
        name = min(unknown)
        alike = get_close_matches(name, sorted(_KNOWN), n=1)
        other = f"{alike[0]} is one" if alike else f"there are {', '.join(sorted(_KNOWN))}"
        raise _wrong(f"calls have no option {shown(name)}", _ELSEWHERE.get(name, other), key)


def check_no_body(options: Mapping[str, object], key: ConnectionKey, what: str) -> None:
    """InputInvalid for a body where *what* makes it: one of the two would be left out in silence."""
    given = [name for name in _BODIES if name in options]
    if given:
        hint = f"leave {given[0]} out, or send the call with post()"
        raise _wrong(f"{what} makes the body itself, and {given[0]} is another", hint, key)


def class_of(priority: str | int | None, key: ConnectionKey) -> int | None:
    """The number of a class of calls. InputInvalid for what is none."""
    if priority is None:
        return None
    if isinstance(priority, str) and priority in CLASSES:
        return CLASSES[priority]
    if isinstance(priority, int) and not isinstance(priority, bool) and 1 <= priority <= MAX_CLASSES:
        return priority
    hint = f"use one of {', '.join(CLASSES)}, or a number from 1 to {MAX_CLASSES}"
    raise _wrong(f"{priority!r} is no priority", hint, key)


def check_bounds(deadline_s: object, max_body_bytes: object, key: ConnectionKey) -> None:
    """InputInvalid for a deadline that is none, or has no end, and for a size that is none."""
    if deadline_s is not None and not (
        isinstance(deadline_s, int | float)
        and not isinstance(deadline_s, bool)
        and 0 < deadline_s <= MAX_LEASE_S  # NaN fails it, too
    ):
        hint = f"give seconds: above 0, and {MAX_LEASE_S:g} at most"
        raise _wrong(f"deadline_s is {deadline_s!r}", hint, key)
    if not isinstance(max_body_bytes, int) or isinstance(max_body_bytes, bool) or max_body_bytes < 0:
        raise _wrong(f"max_body_bytes is {max_body_bytes!r}", "give a number of bytes, 0 or more", key)


def _wrong(what: str, hint: str, key: ConnectionKey) -> InputInvalid:
    return InputInvalid(what, tenant=key.tenant, provider=key.provider, hint=hint)


def graphql_options(query: str, variables: Mapping[str, Any], options: CallOptions) -> CallOptions:
    """*options* for a call of GraphQL; one that changes nothing may be repeated."""
    body = {"query": query, "variables": dict(variables)}
    return {"api": "graphql", "repeatable": _is_query(query), **options, "json": body}


def _is_query(text: str) -> bool:
    """Whether a GraphQL document holds no mutation; a comment or an odd form counts as one."""
    return "mutation" not in text and "subscription" not in text


def full_url(base: str | None, path: str, params: Params | None) -> str:
    """*path* behind *base*, or a whole address of its own, with *params*. InputInvalid for what is none.

    >>> full_url("https://api.example.com/v1", "/items", {"limit": 2, "ids": ["a", "b"], "page": None})
    'https://api.example.com/v1/items?limit=2&ids=a&ids=b'
    """
    if path.startswith(("https://", "http://")):
        url = path
    elif base is None:
        hint = "give the whole address, or put the API into the provider's profile"
        raise InputInvalid("it is not known where the provider's API is", hint=hint)
    else:
        url = f"{base.rstrip('/')}/{path.lstrip('/')}" if path else base
    if not is_address(url):
        raise InputInvalid("the address of the call is none", hint="give a path such as /items")
    pairs = _pairs(params, "params") if params else ()
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in pairs)
    if not query:
        return url
    return f"{url}{'&' if url.partition('?')[2] else '?'}{query}"


def body_of(options: CallOptions) -> tuple[bytes | None, dict[str, str]]:
    """The body of a call and the headers that tell what it is. InputInvalid where more than one is given."""
    given = [name for name in _BODIES if name in options]
    if not given:
        return None, {}
    if len(given) > 1:
        raise InputInvalid(f"{' and '.join(given)} are two bodies", hint="give one of json, data and content")
    if "json" in options:
        try:
            text = json.dumps(options["json"], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode(), {"content-type": "application/json"}
        except (TypeError, ValueError) as error:
            raise InputInvalid(
                f"the body is no JSON: {error}", hint="give numbers, texts, lists, dicts"
            ) from None
    if "data" in options:
        form = urlencode(list(_pairs(options["data"], "data"))).encode()
        return form, {"content-type": "application/x-www-form-urlencoded"}
    content = options.get("content")
    return (content.encode() if isinstance(content, str) else content), {}


def _quoted(text: str) -> str:
    """As urlencode does it with `quote`, which takes its time for what needs none."""
    return text if text.isascii() and text.isalnum() else quote(text, safe="")


def plain_params(params: Params, option: str = "params") -> dict[str, str | list[str]]:
    """*params* as texts, and lists of texts: what a page or a bookmark of one keeps, and what is sent.

    InputInvalid for what is no mapping; *option* says where it was given.

    >>> plain_params({"ids": [1, 2], "deep": False, "page": None})
    {'ids': ['1', '2'], 'deep': 'false'}
    """
    if not isinstance(params, Mapping):
        what = f"{option} must be a mapping, not {type(params).__name__}"
        raise InputInvalid(what, hint="give values by name; a list as a value is repeated")
    found: dict[str, str | list[str]] = {}
    for name, value in params.items():
        if isinstance(value, str):
            found[name] = value
        elif isinstance(value, Sequence):
            found[name] = [_text(one) for one in value if one is not None]
        elif value is not None:
            found[name] = _text(value)
    return found


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pairs(params: Params, option: str) -> Iterator[tuple[str, str]]:
    for name, value in plain_params(params, option).items():
        if isinstance(value, str):
            yield name, value
        else:
            yield from ((name, one) for one in value)
