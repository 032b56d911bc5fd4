"""Failures by kind, in words that hold no address and no text of the server."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

import aiohttp
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import LineTooLong

from fairlead.adapters.http.body import BodyTooLargeError, MalformedBodyError
from fairlead.adapters.http.connector import DeadlinePassedError, InFlightRequest, StaleConnectionError
from fairlead.adapters.http.resolver import NO_SUCH_NAME, AddressNotAllowedError, ProxyNotResolvedError
from fairlead.engine.ports import NoResponse, NoResponseKind

_KINDS: tuple[tuple[type[Exception], NoResponseKind, str], ...] = (  # the first that fits
    (AddressNotAllowedError, "refused_address", "address refused"),
    (ProxyNotResolvedError, "proxy", "name of the proxy not resolved"),
    (StaleConnectionError, "reset", "connection lost before the request was written"),
    (DeadlinePassedError, "timeout", "deadline passed before the request was written"),
    (aiohttp.ClientConnectorDNSError, "dns", "name not resolved"),
    (aiohttp.ClientConnectorCertificateError, "tls", "TLS certificate not accepted"),
    (aiohttp.ClientConnectorSSLError, "tls", "TLS handshake failed"),
    (aiohttp.ClientProxyConnectionError, "proxy", "proxy not reached"),
    (aiohttp.ClientHttpProxyError, "connect", "the proxy made no connection"),
    (aiohttp.ConnectionTimeoutError, "connect", "connect timed out"),
    (aiohttp.ClientConnectorError, "connect", "connect failed"),
    (aiohttp.InvalidURL, "refused_address", "address refused"),
    (BodyTooLargeError, "too_large", "response too large"),
    (MalformedBodyError, "malformed", "response does not decode"),
    (aiohttp.ClientPayloadError, "reset", "response cut off"),
    (aiohttp.ServerDisconnectedError, "reset", "connection closed before the response"),
    (LineTooLong, "too_large", "a header of the response is longer than http.max_header_bytes"),
    (aiohttp.ClientResponseError, "malformed", "response is not HTTP"),
    (HttpProcessingError, "malformed", "response is not HTTP"),
    (aiohttp.ClientOSError, "reset", "connection lost"),
    (aiohttp.ClientConnectionError, "reset", "connection lost"),
    (OSError, "reset", "connection lost"),
)

_LOCAL_ERRORS: Mapping[int | None, tuple[NoResponseKind, str]] = {
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), ("descriptors", "no file descriptor left")),
    **dict.fromkeys((errno.ENOMEM, errno.ENOBUFS), ("resources", "no memory left in the system")),
    errno.EADDRNOTAVAIL: ("resources", "no local port left"),
}
_PROXY_LOGIN = 407


def no_response(failure: Exception, in_flight: InFlightRequest, status: int | None = None) -> NoResponse:
    """Return the outcome of a request that ended in *failure*; *status*: of complete response headers."""
    sent = in_flight.sent_mono is not None
    kind, why = _kind(failure, sent, in_flight.is_queued)
    return NoResponse(sent=sent, kind=kind, why=why, status=status)


def not_sent_kind(failure: Exception) -> NoResponseKind:
    """Return why a request was not sent."""
    return _kind(failure, sent=False, is_queued=False)[0]


def _kind(failure: Exception, sent: bool, is_queued: bool) -> tuple[NoResponseKind, str]:
    cause = getattr(failure, "os_error", None)
    if isinstance(cause, AddressNotAllowedError | ProxyNotResolvedError):
        failure = cause
    if (local_fault := _local_fault(cause or failure)) is not None:
        return local_fault
    if isinstance(failure.__cause__, LineTooLong):
        failure = failure.__cause__
    if isinstance(failure, TimeoutError):
        if not sent and is_queued:
            return "pool", "no free connection in time"
        if not isinstance(failure, aiohttp.ClientError):
            when = "no complete response" if sent else "not connected"
            return "timeout", f"{when} before the deadline"
    for error, kind, words in _KINDS:
        if isinstance(failure, error):
            return kind, _with_detail(failure, words)
    return "malformed", type(failure).__name__  # such as a bug in the parser: the response could not be read


def _local_fault(failure: Exception) -> tuple[NoResponseKind, str] | None:
    """Describe a failure for which the destination is not responsible; return None for any other.

    A failure that a destination can cause through its name or its address counts against the destination;
    otherwise the destination of one tenant could make this process look sick.
    """
    if isinstance(failure, aiohttp.ClientHttpProxyError) and failure.status == _PROXY_LOGIN:
        return "proxy", "the proxy refuses its password (407)"
    if isinstance(failure, socket.gaierror):  # its codes are not errno values
        is_answer = failure.errno in NO_SUCH_NAME
        return None if is_answer else ("resolver", "the name servers of this host did not respond")
    if not isinstance(failure, OSError) or failure.errno not in _LOCAL_ERRORS:
        return None
    if failure.errno == errno.EADDRNOTAVAIL and _has_local_port():  # no address of the destination's family
        return None
    kind, words = _LOCAL_ERRORS[failure.errno]
    return kind, f"{words} ({errno.errorcode[failure.errno or 0]})"


def _has_local_port() -> bool:
    """Return whether a connection could still be given a local port."""
    try:
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
    except OSError:
        return False
    return True


def _with_detail(failure: Exception, words: str) -> str:
    if isinstance(failure, AddressNotAllowedError):
        return f"{words}: {failure}"
    if isinstance(failure, MalformedBodyError):
        return str(failure)
    if isinstance(failure, aiohttp.ClientHttpProxyError):
        return f"{words} ({failure.status})"
    if isinstance(failure, OSError) and not isinstance(failure, aiohttp.ClientSSLError):
        name = errno.errorcode.get(failure.errno or 0)
        return f"{words} ({name})" if name else words
    return words
