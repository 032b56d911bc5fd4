"""The fleet of a test, ended with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.process import Fleet


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    await fleet.close()
