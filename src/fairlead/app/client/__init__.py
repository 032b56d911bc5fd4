"""Calls through a connection, as people make them: ``async with fl.client(tenant, provider) as api``."""

from fairlead.app.client.client import Client
from fairlead.app.client.response import Response

__all__ = ["Client", "Response"]
