"""The hosts that the calls of a connection may go to, so that its credential is sent to no other.

A whole URL may come from a program, from a setting, or from a provider's response. In each case the call only
goes to the URLs of its provider's profile, and to the additional hosts that the profile or the connection name.

Spec: C10, S02.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST_FORM = rf"\A(?:\*\.{_LABEL}\.)?{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?\z"
"""A host, or ``*.`` and a domain of at least two labels for all hosts below it; and a port unless it is 443."""
_ORIGIN = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?(?=[/?#]|\Z)")
_PLAIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?([/?][!\"$-~]*)?")
_PORTS = {"http": 80, "https": 443}
_MAX_CACHED = 1000

Origin = tuple[str, str, int]
"""Scheme, host and port."""


def origin_of(url: str) -> Origin | None:
    """Return scheme, host and port of *url*; None if it has a user, no host, or an unexpected character.

    >>> origin_of("https://API.example.com/items?x=1"), origin_of("https://api.example.com@evil.com/")
    (('https', 'api.example.com', 443), None)
    """
    match = _ORIGIN.match(url)
    if match is None:
        return None
    scheme, host, port = match.groups()
    return scheme, host.lower(), int(port) if port else _PORTS[scheme]


def is_callable_url(url: str) -> bool:
    """Return whether a request can be sent to *url*.

    It must have a host, and neither a fragment, a space nor a control character. Half of a surrogate pair is
    refused, because yarl drops it and would call another resource.

    >>> is_callable_url("https://api.example.com/items?x=1"), is_callable_url("https://api.example.com/items#x")
    (True, False)
    """
    if _PLAIN.fullmatch(url):  # a shortcut for most URLs
        return True
    try:
        url.encode()
        return bool(urlsplit(url).hostname) and "#" not in url and not any(ord(char) <= 32 for char in url)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class AllowedOrigins:
    """The origins that the calls of one connection may go to.

    Attributes:
        origins: Those of the URLs in its provider's profile.
        hosts: Additional hosts, in HOST_FORM, by https at port 443 or at the port that the entry names.
        open_ports: Whether these hosts may also be called by http and at any port, for tests on one machine.
    """

    origins: frozenset[Origin]
    hosts: tuple[str, ...] = ()
    open_ports: bool = False
    _host_cache: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The host by the part of a URL before its path, for allowed URLs: nearly all calls go to one host."""

    def host_of(self, url: str) -> str | None:
        """Return the host that a call of *url* goes to; None if the call is not allowed."""
        path_start = url.find("/", 8)  # after https://
        host = self._host_cache.get(url[:path_start]) if path_start > 0 else None
        return host if host is not None else self._uncached_host_of(url, path_start)

    def _uncached_host_of(self, url: str, path_start: int) -> str | None:
        """Return the same as `host_of`, and cache the host of an allowed *url*.

        Args:
            url: The URL of the call.
            path_start: The index at which its path begins; -1 if it has no path, and then nothing is cached.
        """
        origin = origin_of(url)
        if origin is None or not (origin in self.origins or self._is_allowed(*origin)):
            return None
        if path_start > 0 and len(self._host_cache) < _MAX_CACHED and origin_of(url[:path_start]) == origin:
            self._host_cache[url[:path_start]] = origin[1]
        return origin[1]

    def _is_allowed(self, scheme: str, host: str, port: int) -> bool:
        if scheme != "https" and not self.open_ports:
            return False
        return any(self._matches(entry, host, port) for entry in self.hosts)

    def _matches(self, entry: str, host: str, port: int) -> bool:
        """Return whether *entry* of `hosts` allows *host* at *port*."""
        name, _, entry_port = entry.partition(":")
        is_port = port == int(entry_port) if entry_port else self.open_ports or port == _PORTS["https"]
        return is_port and (host.endswith(name[1:]) if name.startswith("*.") else host == name)


def allowed_origins(urls: Iterable[str], hosts: Iterable[str], *, open_ports: bool = False) -> AllowedOrigins:
    """Return the AllowedOrigins of *urls* and of the additional *hosts*; a URL without an origin is left out."""
    origins = frozenset(origin for origin in map(origin_of, urls) if origin is not None)
    return AllowedOrigins(origins, tuple(dict.fromkeys(hosts)), open_ports)
