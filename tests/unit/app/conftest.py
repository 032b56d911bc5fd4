"""A Fairlead that is never connected, and the same on stores in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead import Fairlead
from fairlead.testing import MemoryFairlead


@pytest.fixture
def fl() -> Fairlead:
    return Fairlead.from_env({})


@pytest.fixture
async def mem(fl: Fairlead) -> AsyncIterator[MemoryFairlead]:
    """Entered by a test that has declared its jobs: ``async with mem``."""
    return MemoryFairlead(fl)
