"""Checks of request heads, and the headers of responses as text. Spec: S04, V7, V8."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from yarl import URL

from fairlead.errors import InvalidInputError

_BAD_VALUE = re.compile(r"[^\t\x20-\x7e]")
PLAIN_URL = re.compile(r"(https?://[a-z0-9.-]+(?::[0-9]{1,5})?)([/?][A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]*)?")
"""A URL that needs no quoting: its origin, and the rest."""
_MAX_VALUE = 64 << 10
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")


def checked_url(text: str, noun: str) -> URL:
    """Return *text* as a URL.

    A URL that needs no quoting is not changed: yarl would make another path of ``/items/%2e%2e``, and break
    signatures. Others, such as those with names in other scripts, are quoted by yarl.

    Raises:
        InvalidInputError: It is not http or https with a host, or has a user or password. The error names
            *noun*.
    """
    try:
        url = URL(text, encoded=PLAIN_URL.fullmatch(text) is not None)
        host, bare = url.host, url.user is None and url.password is None  # these parse it
    except ValueError:
        url, host, bare = URL(), None, False
    if url.scheme not in ("http", "https") or not host or not bare:
        raise InvalidInputError(f"{noun} is no http or https address without user and password")
    return url


def check_header(name: str, value: str, noun: str) -> None:
    """Raise InvalidInputError, naming *noun*, for a header that HTTP does not allow or that is too long."""
    if not is_token(name):
        raise InvalidInputError(f"a header of {noun} has a character that HTTP does not allow")
    check_value(value, noun)


def check_value(value: str, noun: str) -> None:
    """Raise InvalidInputError, naming *noun*, if *value* is too long for a header or not allowed in one."""
    if _BAD_VALUE.search(value):
        raise InvalidInputError(f"a header of {noun} has a character that HTTP does not allow")
    if len(value) > _MAX_VALUE:
        raise InvalidInputError(f"a header of {noun} is longer than {_MAX_VALUE >> 10} KiB")


@lru_cache(maxsize=1024)
def is_token(name: str) -> bool:
    """Return whether *name* can be the name of a header or a method."""
    return _NAME.fullmatch(name) is not None


def lower(headers: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """Return all values of each header by its name in lower case, as text that can be stored.

    Bytes that are not UTF-8 are read as ISO 8859-1, as RFC 9110 §5.5 says.
    """
    fields: dict[str, tuple[str, ...]] = {}
    for name, value in headers:
        key = name.lower()
        text = value if value.isascii() else _clean(value)
        fields[key] = (*fields[key], text) if key in fields else (text,)
    return fields


def _clean(value: str) -> str:
    raw = value.encode(errors="surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
