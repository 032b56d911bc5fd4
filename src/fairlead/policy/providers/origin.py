"""Where calls of a connection may go: its credential is told to no other host (C10, S02).

A whole address may stand in a program, in a setting, or in a vendor's answer. Whoever wrote it, the call goes
to the addresses of its provider's profile, and to hosts that profile or connection name besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST_FORM = rf"\A(?:\*\.{_LABEL}\.)?{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?\z"
"""A host, or with ``*.`` all below one of two labels or more; with a port where it is not that of https."""
_ORIGIN = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?(?=[/?#]|\Z)")
_PLAIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?([/?][!\"$-~]*)?")
_PORTS = {"http": 80, "https": 443}
_MOST = 1000

Origin = tuple[str, str, int]
"""Scheme, host and port."""


def origin_of(url: str) -> Origin | None:
    """Where *url* leads; None where that cannot be told beyond doubt: a user, an odd character, no host.

    >>> origin_of("https://API.example.com/items?x=1"), origin_of("https://api.example.com@evil.com/")
    (('https', 'api.example.com', 443), None)
    """
    found = _ORIGIN.match(url)
    if found is None:
        return None
    scheme, host, port = found.groups()
    return scheme, host.lower(), int(port) if port else _PORTS[scheme]


def is_address(url: str) -> bool:
    """Whether a request can be sent to *url*: it has a host, and neither a fragment nor a space.

    Nor half of a surrogate pair, which yarl would leave out: another resource would be called.

    >>> is_address("https://api.example.com/items?x=1"), is_address("https://api.example.com/items#x")
    (True, False)
    """
    if _PLAIN.fullmatch(url):  # as most are
        return True
    try:
        url.encode()
        return bool(urlsplit(url).hostname) and "#" not in url and not any(ord(char) <= 32 for char in url)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the calls of one connection may go.

    *places*: the addresses of its provider. *hosts*: those that are allowed besides, in HOST_FORM; by https
    at its port, or at the one that is named. *open_ports*: they may be met by http and at any port, for tests
    on one machine.
    """

    places: frozenset[Origin]
    hosts: tuple[str, ...] = ()
    open_ports: bool = False
    _known: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Hosts by the beginning of addresses that were found good: nearly all calls go to one place."""

    def host_of(self, url: str) -> str | None:
        """The host that a call of *url* goes to; None where it must not go there."""
        end = url.find("/", 8)
        known = self._known.get(url[:end]) if end > 0 else None
        return known if known is not None else self._found(url, end)

    def _found(self, url: str, end: int) -> str | None:
        origin = origin_of(url)
        if origin is None or not (origin in self.places or self._is_allowed(*origin)):
            return None
        if end > 0 and len(self._known) < _MOST and origin_of(url[:end]) == origin:
            self._known[url[:end]] = origin[1]
        return origin[1]

    def _is_allowed(self, scheme: str, host: str, port: int) -> bool:
        if scheme != "https" and not self.open_ports:
            return False
        return any(self._is_meant(entry, host, port) for entry in self.hosts)

    def _is_meant(self, entry: str, host: str, port: int) -> bool:
        name, _, wanted = entry.partition(":")
        is_port = port == int(wanted) if wanted else self.open_ports or port == _PORTS["https"]
        return is_port and (host.endswith(name[1:]) if name.startswith("*.") else host == name)


def origins_of(urls: Iterable[str], hosts: Iterable[str], *, open_ports: bool = False) -> Origins:
    """The origins of *urls*, and *hosts*."""
    places = frozenset(origin for origin in map(origin_of, urls) if origin is not None)
    return Origins(places, tuple(dict.fromkeys(hosts)), open_ports)
