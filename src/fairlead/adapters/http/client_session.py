"""Connectors and sessions of aiohttp: bounded, without cookies, redirects or resends."""

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
    """Bounds of a transport.

    Attributes:
        connect_timeout_s: For the wait for a free connection, DNS, connect and TLS together.
        keepalive_s: How long an idle connection is reused; short, so that few are found dead.
        max_connections: Connections of this process to all hosts.
        max_per_host: Connections to one host, so that a slow one does not take all.
        max_header_bytes: Of one header line of a response.
        max_headers: Header lines of a response.
    """

    connect_timeout_s: float = 5.0
    keepalive_s: float = 2.0
    max_connections: int = 256
    max_per_host: int = 100
    max_header_bytes: int = 16 << 10
    max_headers: int = 128


class Proxies:
    """The proxies of the environment, if *trust_env*. aiohttp's own option would also send netrc passwords."""

    def __init__(self, trust_env: bool) -> None:
        self._proxies = getproxies_environment() if trust_env else {}
        self._direct = _networks(self._proxies.get("no", ""))

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of the proxies, which the address policy does not check."""
        return frozenset(urlsplit(proxy).hostname or "" for proxy in self._proxies.values())

    def refusal(self, scheme: str, host: str) -> str | None:
        """Return why nothing may be sent to *host*: a proxy's own address is not checked."""
        is_direct = host in self.hosts and self.proxy_of(scheme, host) is None
        return "it is the host of this process's proxy" if is_direct else None

    def proxy_of(self, scheme: str, host: str) -> str | None:
        """Return the proxy for requests to *host*, if any."""
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
    networks = []
    for word in no_proxy.replace(",", " ").split():
        with suppress(ValueError):
            networks.append(ip_network(word.strip("[]"), strict=False))
    return tuple(networks)


def open_connector(
    settings: TransportSettings,
    resolver: CheckedResolver,
    tls: ssl.SSLContext | None,
    *,
    reuse: bool = True,
    dials: DialObserver | None = None,
) -> CheckedConnector:
    """Return a connector for the request in `current_request`; without *reuse* each gets a new connection."""

    def observe(origin: str, failure: Exception | None) -> None:
        if dials is not None and failure is None:
            dials.reached(origin)
        elif dials is not None and failure is not None:
            dials.failed(origin, not_sent_kind(failure))

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
    """Return a session on such a connector. *options* go to aiohttp."""
    connector = open_connector(settings, resolver, tls, reuse=reuse, dials=dials)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=timeout_of(settings, None),
        **bounds_of(settings),
        **options,
    )
    session._retry_connection = False  # aiohttp would repeat a GET or DELETE after a lost connection
    return session


def bounds_of(settings: TransportSettings) -> dict[str, Any]:
    """Return the bounds of response headers by aiohttp's names."""
    return {
        "max_line_size": settings.max_header_bytes,
        "max_field_size": settings.max_header_bytes,
        "max_headers": settings.max_headers,
    }


def timeout_of(settings: TransportSettings, total_s: float | None) -> aiohttp.ClientTimeout:
    """Return aiohttp's timeouts; *total_s* None: the caller limits the whole exchange."""
    return aiohttp.ClientTimeout(total=total_s, connect=settings.connect_timeout_s, ceil_threshold=math.inf)
