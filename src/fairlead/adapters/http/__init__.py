"""HTTP on aiohttp: token requests that know whether they left, to addresses that may be called (D7, S02).

resolver         the address policy, asked for each address that a name leads to
connector        idle connections that are unfit are never handed out
body             decoding of answers within bounds
token_transport  the port TokenTransport
"""

from __future__ import annotations

from fairlead.adapters.http.resolver import AddressPolicy
from fairlead.adapters.http.token_transport import AiohttpTokenTransport

__all__ = ["AddressPolicy", "AiohttpTokenTransport"]
