"""From what people write to the bytes of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote, urlencode, urlsplit

from fairlead.errors import InputInvalid

_PLAIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?([/?][!\"$-~]*)?")

_BODIES = ("json", "data", "content")

Params = Mapping[str, str | int | float | bool | Sequence[str | int] | None]


class CallOptions(TypedDict, total=False):
    """What a call may be told besides its path.

    *params*: of the query; None is left out, a list is repeated. One of *json*, *data* (a form) and *content*
    (bytes, or a text) is its body. *headers*: none that carries the credential. *api*: which of the
    provider's APIs. *cost*, *operation*: for its limits. *priority*: a class, 1 first, or a name: real-time,
    scheduled, batch. *wait_s*: how long it may wait for its limits, default till its deadline, in a job 2.
    *deadline_s*: for all of it, default as the connection has it, else 60. *repeatable*: it may be sent twice
    though its method says no. *max_body_bytes* of the answer, default 16 MiB.
    """

    params: Params
    json: Any
    data: Mapping[str, str]
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
    if not _is_sane(url):
        raise InputInvalid("the address of the call is none", hint="give a path such as /items")
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in _pairs(params)) if params else ""
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
        form = urlencode(options["data"]).encode()
        return form, {"content-type": "application/x-www-form-urlencoded"}
    content = options.get("content")
    return (content.encode() if isinstance(content, str) else content), {}


def _quoted(text: str) -> str:
    """As urlencode does it with `quote`, which takes its time for what needs none."""
    return text if text.isascii() and text.isalnum() else quote(text, safe="")


def _is_sane(url: str) -> bool:
    if _PLAIN.fullmatch(url):  # as most are
        return True
    try:
        return bool(urlsplit(url).hostname) and "#" not in url and not any(ord(char) <= 32 for char in url)
    except ValueError:
        return False


def _pairs(params: Params) -> Iterator[tuple[str, str]]:
    for name, value in params.items():
        if value is None:
            continue
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        for one in values:
            yield name, str(one).lower() if isinstance(one, bool) else str(one)
