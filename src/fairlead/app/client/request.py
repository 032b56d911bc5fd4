"""From what people write to the bytes of a request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from fairlead.app.client.options import CallOptions, Params, bodies_in
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.origin import is_address
from fairlead.policy.providers.profile_parts import CredentialHeader
from fairlead.policy.text.names import shown


def full_url(base: str | None, path: str, params: Params | None) -> str:
    """*path* behind *base*, or a whole address of its own, with *params*. InvalidInputError for what is none.

    >>> full_url("https://api.example.com/v1", "/items", {"limit": 2, "ids": ["a", "b"], "page": None})
    'https://api.example.com/v1/items?limit=2&ids=a&ids=b'
    """
    if path.startswith(("https://", "http://")):
        url = path
    elif base is None:
        hint = "give the whole address, or put the API into the provider's profile"
        raise InvalidInputError("it is not known where the provider's API is", hint=hint)
    else:
        url = f"{base.rstrip('/')}/{path.lstrip('/')}" if path else base
    if not is_address(url):
        raise InvalidInputError("the address of the call is none", hint="give a path such as /items")
    if not params:
        return url
    try:
        query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in _pairs(params, "params"))
    except UnicodeEncodeError:
        _raise_no_text("params")
    if not query:
        return url
    return f"{url}{'&' if url.partition('?')[2] else '?'}{query}"


def body_of(options: CallOptions) -> tuple[bytes | None, dict[str, str]]:
    """The body of a call and the headers that tell what it is; None is no body.

    InvalidInputError where more than one is given, and for what cannot be sent.
    """
    given = bodies_in(options)
    if not given:
        return None, {}
    if len(given) > 1:
        raise InvalidInputError(
            f"{' and '.join(given)} are two bodies", hint="give one of json, data and content"
        )
    try:
        if given == ["json"]:
            return _json(options["json"]), {"content-type": "application/json"}
        if given == ["data"]:
            form = urlencode(list(_pairs(options["data"], "data"))).encode()
            return form, {"content-type": "application/x-www-form-urlencoded"}
        content = options["content"]
        return (content.encode() if isinstance(content, str) else bytes(content)), {}
    except UnicodeEncodeError:
        _raise_no_text(given[0])


def _json(value: object) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise InvalidInputError(
            f"the body is no JSON: {why}", hint="give numbers, texts, lists, dicts"
        ) from None
    return text.encode()


def _raise_no_text(option: str) -> NoReturn:
    what = f"a text in {option} holds half of a surrogate pair, which cannot be sent"
    raise InvalidInputError(what, hint="decode what it came from with errors='replace'") from None


def headers_of(
    given: Mapping[Any, Any] | None, told: Mapping[str, str], carried: CredentialHeader
) -> dict[str, str]:
    """What is *given* over what is *told*, by names in lower case, or spelled as the profile has them.

    So each is sent once. InvalidInputError for what is no text, and for the credential's own.
    """
    headers = dict(told)
    for name, value in given.items() if given else ():
        if not (isinstance(name, str) and isinstance(value, str)):
            what = f"a header must be a text by a name, not {type(value).__name__} by {shown(name)}"
            raise InvalidInputError(what, hint="give str(value)")
        headers[name.lower()] = str.__str__(value)
    if carried.name.lower() in headers:
        raise InvalidInputError("the credential is added here", hint="leave it out of the headers")
    for name in carried.fixed:
        if (own := headers.pop(name.lower(), None)) is not None:
            headers[name] = own
    return headers


def _quoted(text: str) -> str:
    """As urlencode does it with `quote`, which takes its time for what needs none."""
    return text if text.isascii() and text.isalnum() else quote(text, safe="")


def plain_params(params: Params, option: str = "params") -> dict[str, str | list[str]]:
    """*params* as texts, and lists of texts: what a page or a bookmark of one keeps, and what is sent.

    InvalidInputError for what is no mapping of texts, numbers and lists of them; *option* says where it was given.

    >>> plain_params({"ids": [1, 2], "deep": False, "page": None})
    {'ids': ['1', '2'], 'deep': 'false'}
    """
    if not isinstance(params, Mapping):
        what = f"{option} must be a mapping, not {type(params).__name__}"
        raise InvalidInputError(what, hint="give values by name; a list as a value is repeated")
    found: dict[str, str | list[str]] = {}
    for name, value in params.items():
        if type(name) is not str and not isinstance(name, str):
            raise InvalidInputError(
                f"a name in {option} is of type {type(name).__name__}", hint="give str(name)"
            )
        if type(value) is str:  # as most are
            found[name] = value
        elif isinstance(value, list | tuple):
            found[name] = [_text(one, name, option) for one in value if one is not None]
        elif value is not None:
            found[name] = _text(value, name, option)
    return found


def _text(value: object, name: str, option: str) -> str:
    """Of an Enum that is a text or a number what it stands for, and not its name in the program."""
    try:
        if isinstance(value, int):
            return int.__repr__(value) if not isinstance(value, bool) else "true" if value else "false"
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, float):
            return float.__repr__(value)
    except ValueError:  # Python writes no numbers of thousands of digits
        pass
    what = f"{shown(name)} in {option} is of type {type(value).__name__}"
    raise InvalidInputError(what, hint="give a text, a number, True, False, or a list of these")


def _pairs(params: Params, option: str) -> Iterator[tuple[str, str]]:
    for name, value in plain_params(params, option).items():
        if isinstance(value, str):
            yield name, value
        else:
            yield from ((name, one) for one in value)
