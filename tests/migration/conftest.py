"""A database for migrations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from tests.support.databases import settings_of, without_public
from tests.support.servers import drop_database, fresh_database


@pytest.fixture
async def empty(servers: Endpoints) -> AsyncIterator[DatabaseSettings]:
    """A database that nobody has migrated."""
    url = await fresh_database(servers.database_url)
    await without_public(url)
    yield settings_of(url)
    await drop_database(servers.database_url, url)
