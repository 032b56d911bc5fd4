"""Bulk operations by vendor: what begins one, what asks after it, what its answers mean (G5)."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.policy.calls.bulk.protocol import BulkWay
from fairlead.policy.calls.bulk.shopify_bulk import ShopifyBulk

WAYS: Mapping[str, BulkWay] = {"shopify": ShopifyBulk()}
"""By the word that a profile has for it (``limits.bulk.way``)."""
