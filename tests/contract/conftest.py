"""Each suite here runs once per implementation."""

from __future__ import annotations

import pytest

from tests.contract.postgres import postgres_stores
from tests.contract.stores import Stores, memory_stores


@pytest.fixture(params=["memory", "postgres"])
def stores(request: pytest.FixtureRequest) -> Stores:
    if request.param == "memory":
        return memory_stores()
    return postgres_stores(request.getfixturevalue("database"))
