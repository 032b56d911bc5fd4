"""The part that the transports share: settings, address policy, resolver, and how they are closed."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

from fairlead.adapters.http.client_session import Proxies, TransportSettings
from fairlead.adapters.http.resolver import AddressPolicy, CheckedResolver
from fairlead.engine.ports import DialObserver

PUBLIC_ONLY = AddressPolicy()
_Self = TypeVar("_Self", bound="HttpTransport")


class HttpTransport(ABC):
    """A transport that opens its connections at the first request. Create and use it in one event loop.

    Args:
        policy: Which addresses may be called. Default: public ones, over https.
        tls: A TLS context for a private certificate authority. Default: one that verifies and obeys
            SSL_CERT_FILE and SSL_CERT_DIR.
        trust_env: Whether to obey HTTPS_PROXY and NO_PROXY. Behind a proxy only the proxy can check what a
            name resolves to.
        dials: An observer of each new connection.
    """

    def __init__(
        self,
        settings: TransportSettings,
        *,
        policy: AddressPolicy = PUBLIC_ONLY,
        tls: ssl.SSLContext | None = None,
        trust_env: bool = False,
        dials: DialObserver | None = None,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._tls = tls
        self._proxies = Proxies(trust_env)
        self._dials = dials
        self._resolver: CheckedResolver | None = None

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        resolver, self._resolver = self._resolver, None
        await self._close_connections()
        if resolver is not None:
            await resolver.close()

    @abstractmethod
    async def _close_connections(self) -> None:
        """Close the client session, if one was opened."""

    def _open_resolver(self) -> CheckedResolver:
        if self._resolver is None:
            self._resolver = CheckedResolver(self._policy, exempt=self._proxies.hosts)
        return self._resolver
