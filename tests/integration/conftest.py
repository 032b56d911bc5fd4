"""Servers for the whole folder: one PostgreSQL, and in it the tables of django-oauth-toolkit to copy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fairlead.adapters.embedded import Endpoints
from tests.integration.dot import migrated_database
from tests.support.servers import running_servers


@pytest.fixture(scope="session")
def endpoints() -> Iterator[Endpoints]:
    with running_servers() as endpoints:
        yield endpoints


@pytest.fixture(scope="session")
def dot_template(endpoints: Endpoints) -> str:
    """A migrated database that nobody is connected to."""
    return asyncio.run(migrated_database(endpoints.database_url))
