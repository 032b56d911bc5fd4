"""HTTP on aiohttp: it is known whether a request was sent, and private addresses are refused. Spec: D7, S02.

resolver         the address policy, applied to each address that a name resolves to
connector        no connection that is closed or has unread bytes is reused
client_session   bounded connectors and sessions
exchange         one request on one connection, without a session
wire             checks of request heads, and response headers
body             bounded decoding of bodies
http_failures    failures by kind
http_transport   the part that both transports share
token_transport  the port TokenTransport
transport        the port Transport, for calls
webhook          the port WebhookSender
"""

from __future__ import annotations

from fairlead.adapters.http.client_session import TransportSettings
from fairlead.adapters.http.resolver import AddressPolicy
from fairlead.adapters.http.token_transport import AiohttpTokenTransport
from fairlead.adapters.http.transport import CALL_SETTINGS, AiohttpTransport

__all__ = ["CALL_SETTINGS", "AddressPolicy", "AiohttpTokenTransport", "AiohttpTransport", "TransportSettings"]
