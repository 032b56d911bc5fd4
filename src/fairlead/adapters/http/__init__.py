"""HTTP on aiohttp: requests that know whether they left, to addresses that may be called (D7, S02).

resolver         the address policy, asked for each address that a name leads to
connector        idle connections that are unfit are never handed out
session          what both are opened with, bounded; a session with nothing that it does by itself
exchange         one request on one connection, without a session
wire             what goes into a request's head and comes out of an answer's
body             decoding of answers within bounds
failures         what went wrong, in a closed list of kinds
token_transport  the port TokenTransport
transport        the port Transport, for calls
"""

from __future__ import annotations

from fairlead.adapters.http.client_session import TransportSettings
from fairlead.adapters.http.resolver import AddressPolicy
from fairlead.adapters.http.token_transport import AiohttpTokenTransport
from fairlead.adapters.http.transport import CALL_SETTINGS, AiohttpTransport

__all__ = ["CALL_SETTINGS", "AddressPolicy", "AiohttpTokenTransport", "AiohttpTransport", "TransportSettings"]
