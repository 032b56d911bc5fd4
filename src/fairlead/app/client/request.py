"""Builds the URL, the headers and the body of a request from call options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from fairlead.app.client.options import CallOptions, Params, bodies_in
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.origin import is_callable_url
from fairlead.policy.providers.profile_parts import CredentialHeader
from fairlead.policy.text.names import shown


def full_url(base: str | None, path: str, params: Params | None) -> str:
    """Return *path* below *base*, or *path* if it is a whole URL, with *params*.

    Raises:
        InvalidInputError: The result is not a valid URL.

    >>> full_url("https://api.example.com/v1", "/items", {"limit": 2, "ids": ["a", "b"], "page": None})
    'https://api.example.com/v1/items?limit=2&ids=a&ids=b'
    """
    if path.startswith(("https://", "http://")):
        url = path
    elif base is None:
        hint = "give the whole address, or put the API into the provider's profile"
        raise InvalidInputError("the provider's profile has no URL of its API", hint=hint)
    else:
        url = f"{base.rstrip('/')}/{path.lstrip('/')}" if path else base
    if not is_callable_url(url):
        raise InvalidInputError("the URL of the call is not valid", hint="give a path such as /items")
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
    """Return the body of a call, or None, and the headers that describe it.

    Raises:
        InvalidInputError: There is more than one, or it cannot be sent.
    """
    bodies = bodies_in(options)
    if not bodies:
        return None, {}
    if len(bodies) > 1:
        raise InvalidInputError(
            f"{' and '.join(bodies)} are two bodies", hint="give one of json, data and content"
        )
    try:
        if bodies == ["json"]:
            return _json(options["json"]), {"content-type": "application/json"}
        if bodies == ["data"]:
            form = urlencode(list(_pairs(options["data"], "data"))).encode()
            return form, {"content-type": "application/x-www-form-urlencoded"}
        content = options["content"]
        return (content.encode() if isinstance(content, str) else bytes(content)), {}
    except UnicodeEncodeError:
        _raise_no_text(bodies[0])


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
    message = f"a text in {option} holds half of a surrogate pair, which cannot be sent"
    raise InvalidInputError(message, hint="decode its source with errors='replace'") from None


def headers_of(
    headers: Mapping[Any, Any] | None, defaults: Mapping[str, str], credential: CredentialHeader
) -> dict[str, str]:
    """Return *headers* over *defaults*, so that each is sent once.

    Names are in lower case, or spelled as the profile has them.

    Raises:
        InvalidInputError: A header is not text, or is the one of the credential.
    """
    result = dict(defaults)
    for name, value in headers.items() if headers else ():
        if not (isinstance(name, str) and isinstance(value, str)):
            message = f"a header must be a text by a name, not {type(value).__name__} by {shown(name)}"
            raise InvalidInputError(message, hint="give str(value)")
        result[name.lower()] = str.__str__(value)
    if credential.name.lower() in result:
        raise InvalidInputError("fairlead adds the credential", hint="leave it out of the headers")
    for name in credential.fixed:
        if (fixed_value := result.pop(name.lower(), None)) is not None:
            result[name] = fixed_value
    return result


def _quoted(text: str) -> str:
    """Return *text* quoted. `quote` is slow, and most texts need no quoting."""
    return text if text.isascii() and text.isalnum() else quote(text, safe="")


def plain_params(params: Params, option: str = "params") -> dict[str, str | list[str]]:
    """Return *params* as texts and lists of texts, as they are sent, and stored in a cursor.

    Args:
        params: Texts, numbers, booleans and lists of these, by name. None is left out.
        option: The name of the option, for messages.

    Raises:
        InvalidInputError: *params* is no such mapping.

    >>> plain_params({"ids": [1, 2], "deep": False, "page": None})
    {'ids': ['1', '2'], 'deep': 'false'}
    """
    if not isinstance(params, Mapping):
        message = f"{option} must be a mapping, not {type(params).__name__}"
        raise InvalidInputError(message, hint="give values by name; a list as a value is repeated")
    plain: dict[str, str | list[str]] = {}
    for name, value in params.items():
        if type(name) is not str and not isinstance(name, str):
            raise InvalidInputError(
                f"a name in {option} is of type {type(name).__name__}", hint="give str(name)"
            )
        if type(value) is str:  # as most are
            plain[name] = value
        elif isinstance(value, list | tuple):
            plain[name] = [_text(item, name, option) for item in value if item is not None]
        elif value is not None:
            plain[name] = _text(value, name, option)
    return plain


def _text(value: object, name: str, option: str) -> str:
    """Return *value* as text. For an Enum of texts or numbers it is the value, not the name."""
    try:
        if isinstance(value, int):
            return int.__repr__(value) if not isinstance(value, bool) else "true" if value else "false"
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, float):
            return float.__repr__(value)
    except ValueError:  # Python writes no numbers of thousands of digits
        pass
    message = f"{shown(name)} in {option} is of type {type(value).__name__}"
    raise InvalidInputError(message, hint="give a text, a number, True, False, or a list of these")


def _pairs(params: Params, option: str) -> Iterator[tuple[str, str]]:
    for name, value in plain_params(params, option).items():
        if isinstance(value, str):
            yield name, value
        else:
            yield from ((name, item) for item in value)
