"""Network errors of common client libraries, identified by class name, so that none is imported."""

from __future__ import annotations

from collections.abc import Mapping

NETWORK_ERRORS: Mapping[str, frozenset[str]] = {
    "aiohttp": frozenset({"ClientConnectionError", "ClientPayloadError"}),
    "asyncio": frozenset({"IncompleteReadError"}),
    "asyncpg": frozenset({"PostgresConnectionError", "OperatorInterventionError", "TooManyConnectionsError"}),
    "botocore": frozenset({"HTTPClientError", "ConnectionError", "EndpointConnectionError"}),
    "http": frozenset({"IncompleteRead", "BadStatusLine"}),  # http.client, as urllib raises them
    "httpx": frozenset({"TransportError", "StreamClosed"}),
    "httpx2": frozenset({"TransportError", "StreamClosed"}),
    "psycopg": frozenset({"OperationalError"}),
    "psycopg2": frozenset({"OperationalError"}),
    "redis": frozenset({"ConnectionError", "TimeoutError"}),
    "requests": frozenset({"ConnectionError", "Timeout", "ChunkedEncodingError"}),
    "urllib3": frozenset({"ProtocolError", "TimeoutError", "MaxRetryError", "ProxyError", "SSLError"}),
}
"""By the package that a class is of; its subclasses count, too."""


def is_network_error(error: BaseException) -> bool:
    """Return whether *error*, or a class that it derives from, is in NETWORK_ERRORS.

    >>> is_network_error(KeyError("httpx"))
    False
    """
    return any(
        cls.__name__ in NETWORK_ERRORS.get(cls.__module__.partition(".")[0], ())
        for cls in type(error).__mro__
    )
