"""Bulk operations by vendor: what begins one, what asks after it, what its answers mean (G5)."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.policy.bulk.shopify import ShopifyBulk
from fairlead.policy.bulk.way import BulkWay

WAYS: Mapping[str, BulkWay] = {"shopify": ShopifyBulk()}
"""By the word that a profile has for it (``limits.bulk.way``)."""
