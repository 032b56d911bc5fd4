"""Rude APIs: they enforce their own limits, and keep a ledger that is the truth."""

from __future__ import annotations

from fairlead.testing.api.leaky import LeakyBucket
from fairlead.testing.api.shopify import ShopifyApi, ShopLimits

__all__ = ["LeakyBucket", "ShopLimits", "ShopifyApi"]
