"""Servers for tests that act as vendor APIs, enforce their limits, and record every request.

    ShopifyApi, NetSuiteApi, HubSpotApi, StripeApi, SalesforceApi, MercadoLibreApi    a vendor's limits and refusals
    MalformedApi                                                                      malformed responses

In a test: ``async with ShopifyApi() as api``. Over processes: `ApiProcess`, or
``python -m fairlead.testing.api NAME --port PORT``. All but `MalformedApi` have
`Switches`, which change while they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.testing.api.api_process import ApiProcess
from fairlead.testing.api.hubspot import HubSpotApi
from fairlead.testing.api.leaky import LeakyBucket, RollingWindow
from fairlead.testing.api.malformed import MALFORMED_RESPONSES
from fairlead.testing.api.malformed_api import MalformedApi
from fairlead.testing.api.mercadolibre import MercadoLibreApi
from fairlead.testing.api.netsuite import NetSuiteApi
from fairlead.testing.api.request_log import Arrival, RequestLog
from fairlead.testing.api.salesforce import SalesforceApi
from fairlead.testing.api.shopify import ShopifyApi, ShopLimits
from fairlead.testing.api.stripe import StripeApi
from fairlead.testing.api.switches import Switches
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, VendorApi

APIS: Mapping[str, type[VendorApi]] = MappingProxyType(
    {
        api.name: api
        for api in (HubSpotApi, MercadoLibreApi, NetSuiteApi, SalesforceApi, ShopifyApi, StripeApi)
    }
)
"""The vendors by the names of their profiles."""

__all__ = [
    "APIS",
    "MALFORMED_RESPONSES",
    "ApiProcess",
    "ApiRequest",
    "ApiResponse",
    "Arrival",
    "HubSpotApi",
    "LeakyBucket",
    "MalformedApi",
    "MercadoLibreApi",
    "NetSuiteApi",
    "RequestLog",
    "RollingWindow",
    "SalesforceApi",
    "ShopLimits",
    "ShopifyApi",
    "StripeApi",
    "Switches",
    "VendorApi",
]
