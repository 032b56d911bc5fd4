"""Each suite here runs once per implementation."""

from __future__ import annotations

import pytest

from tests.contract.stores import Stores, memory_stores


@pytest.fixture(params=["memory"])
def stores(request: pytest.FixtureRequest) -> Stores:
    return memory_stores()
