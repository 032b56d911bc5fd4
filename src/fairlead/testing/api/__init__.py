"""Rude APIs: they enforce their own limits by their own clock, and keep a ledger that is the truth.

    ShopifyApi, NetSuiteApi, HubSpotApi, StripeApi, SalesforceApi, MercadoLibreApi    what each vendor refuses
    LiarApi                                                                           what no honest one says

In a test: ``async with ShopifyApi() as api``. Over processes: `ApiProcess`, or
``python -m fairlead.testing.api NAME --port PORT``. All but the liar can be switched while they run, see
`Switches`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.testing.api.base import Answer, Api, Call
from fairlead.testing.api.hubspot import HubSpotApi
from fairlead.testing.api.leaky import LeakyBucket, RollingWindow
from fairlead.testing.api.ledger import Arrival, Ledger
from fairlead.testing.api.malformed import LIES
from fairlead.testing.api.malformed_api import LiarApi
from fairlead.testing.api.mercadolibre import MercadoLibreApi
from fairlead.testing.api.netsuite import NetSuiteApi
from fairlead.testing.api.process import ApiProcess
from fairlead.testing.api.salesforce import SalesforceApi
from fairlead.testing.api.shopify import ShopifyApi, ShopLimits
from fairlead.testing.api.stripe import StripeApi
from fairlead.testing.api.switches import Switches

APIS: Mapping[str, type[Api]] = MappingProxyType(
    {
        api.name: api
        for api in (HubSpotApi, MercadoLibreApi, NetSuiteApi, SalesforceApi, ShopifyApi, StripeApi)
    }
)
"""The vendors by the names of their profiles."""

__all__ = [
    "APIS",
    "LIES",
    "Answer",
    "Api",
    "ApiProcess",
    "Arrival",
    "Call",
    "HubSpotApi",
    "LeakyBucket",
    "Ledger",
    "LiarApi",
    "MercadoLibreApi",
    "NetSuiteApi",
    "RollingWindow",
    "SalesforceApi",
    "ShopLimits",
    "ShopifyApi",
    "StripeApi",
    "Switches",
]
