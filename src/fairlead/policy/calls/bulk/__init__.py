"""Bulk operations by vendor: what begins one, what asks after it, what its answers mean (G5)."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.policy.calls.bulk.protocol import BulkProtocol
from fairlead.policy.calls.bulk.shopify_bulk import ShopifyBulk

BULK_PROTOCOLS: Mapping[str, BulkProtocol] = {"shopify": ShopifyBulk()}
"""By the word that a profile has for it (``limits.bulk.protocol``)."""
