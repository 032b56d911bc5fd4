"""The client for calls through a connection: ``async with fl.client(tenant, provider) as api``."""

from fairlead.app.client.client import Client
from fairlead.app.client.response import Response
from fairlead.app.client.streaming import StreamedResponse
from fairlead.engine.calls.bulk_operation import BulkRun

__all__ = ["BulkRun", "Client", "Response", "StreamedResponse"]
