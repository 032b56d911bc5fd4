"""aiohttp's session as both transports want it: bounded, without cookies, redirects or resends of its own."""

from __future__ import annotations

import math
import ssl
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit
from urllib.request import (  # type: ignore[attr-defined]  # typeshed does not know the second
    getproxies_environment,
    proxy_bypass_environment,
)

import aiohttp

from fairlead.adapters.http.connector import CheckedConnector
from fairlead.adapters.http.http_failures import not_sent_kind
from fairlead.adapters.http.resolver import CheckedResolver
from fairlead.engine.ports import DialObserver


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Bounds of a transport; times in seconds."""

    connect_timeout_s: float = 5.0
    """For a free place in the pool, DNS, connect and TLS together; default 5."""
    keepalive_s: float = 2.0
    """For how long an idle connection is used again: short, so that few are found dead; default 2."""
    max_connections: int = 256
    """Connections of this process to all hosts; default 256."""
    max_per_host: int = 100
    """Connections to one of them, so that a slow one does not take all; default 100."""
    max_header_bytes: int = 16 << 10
    """Of one header line of an answer; default 16 KiB."""
    max_headers: int = 128
    """Header lines of an answer; default 128."""


class Proxies:
    """The proxies of the environment, where they are to be used. (aiohttp's own trust_env would send the
    passwords of a netrc file, too.)"""

    def __init__(self, trust_env: bool) -> None:
        self._proxies = getproxies_environment() if trust_env else {}
        self._direct = _networks(self._proxies.get("no", ""))

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts that are ours, so the address policy does not ask about them."""
        return frozenset(urlsplit(proxy).hostname or "" for proxy in self._proxies.values())

    def refusal(self, scheme: str, host: str) -> str | None:
        """Return why nothing may be sent to *host*: a proxy's own address is not checked."""
        is_direct = host in self.hosts and self.proxy_of(scheme, host) is None
        return "it is the host of this process's proxy" if is_direct else None

    def proxy_of(self, scheme: str, host: str) -> str | None:
        """The proxy for requests to *host*, if any."""
        if not self._proxies or proxy_bypass_environment(host, self._proxies) or self._is_direct(host):
            return None
        return self._proxies.get(scheme)

    def _is_direct(self, host: str) -> bool:
        """Return whether *host* is an address in a network listed in NO_PROXY; names are not resolved."""
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._direct)


def _networks(no_proxy: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the networks (`10.0.0.0/8`, `fd00::/8`) and addresses listed in NO_PROXY."""
    found = []
    for word in no_proxy.replace(",", " ").split():
        with suppress(ValueError):
            found.append(ip_network(word.strip("[]"), strict=False))
    return tuple(found)


def open_connector(
    settings: TransportSettings,
    resolver: CheckedResolver,
    tls: ssl.SSLContext | None,
    *,
    reuse: bool = True,
    dials: DialObserver | None = None,
) -> CheckedConnector:
    """Connections for requests in a flight (see `connector`); without *reuse* each gets its own."""

    def observe(place: str, failure: Exception | None) -> None:
        if dials is not None and failure is None:
            dials.reached(place)
        elif dials is not None and failure is not None:
            dials.failed(place, not_sent_kind(failure))

    return CheckedConnector(
        observe=observe,
        resolver=resolver,
        ssl=tls or True,
        limit=settings.max_connections,
        limit_per_host=settings.max_per_host,
        timeout_ceil_threshold=math.inf,
        **({"keepalive_timeout": settings.keepalive_s} if reuse else {"force_close": True}),
    )


def open_session(
    settings: TransportSettings,
    resolver: CheckedResolver,
    tls: ssl.SSLContext | None,
    *,
    reuse: bool = True,
    dials: DialObserver | None = None,
    **options: Any,
) -> aiohttp.ClientSession:
    """A session on such connections. *options* go to aiohttp."""
    connector = open_connector(settings, resolver, tls, reuse=reuse, dials=dials)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=timeout_of(settings, None),
        **bounds_of(settings),
        **options,
    )
    session._retry_connection = False  # else it repeats a GET or DELETE whose connection was lost
    return session


def bounds_of(settings: TransportSettings) -> dict[str, Any]:
    """Of an answer's head, by aiohttp's names."""
    return {
        "max_line_size": settings.max_header_bytes,
        "max_field_size": settings.max_header_bytes,
        "max_headers": settings.max_headers,
    }


def timeout_of(settings: TransportSettings, total_s: float | None) -> aiohttp.ClientTimeout:
    """*total_s* for the whole exchange, to the moment; None: somebody else keeps the time."""
    return aiohttp.ClientTimeout(total=total_s, connect=settings.connect_timeout_s, ceil_threshold=math.inf)
