"""What holds for all tests: hypothesis, the servers of a run, and a database of its own for each test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from hypothesis import settings

from fairlead._core.known_secrets import KNOWN_SECRETS
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from tests import tiers
from tests.faults.support.cluster import own_cluster
from tests.support import page_hooks, standstill_hooks
from tests.support.databases import migrated_database, settings_of
from tests.support.page_hooks import (  # noqa: F401 - pytest looks for them here
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from tests.support.servers import database_name, drop_database, fresh_database, running_servers

# A busy machine is no failure of a property; a found example is printed so that anyone can replay it.
settings.register_profile("fairlead", deadline=None, print_blob=True)
settings.load_profile("fairlead")


def pytest_addoption(parser: pytest.Parser) -> None:
    page_hooks.pytest_addoption(parser)
    tiers.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    page_hooks.pytest_configure(config)
    config.pluginmanager.register(standstill_hooks)
    config.pluginmanager.register(tiers)


@pytest.fixture(autouse=True)
def known_secrets() -> None:
    """No test's secrets are searched for in the texts of the next."""
    KNOWN_SECRETS.clear()


@pytest.fixture(scope="session")
def servers() -> Iterator[Endpoints]:
    """Real PostgreSQL and Valkey, once per run, started by the first test that asks.

    FAIRLEAD_TEST_DATABASE_URL names another PostgreSQL server to test on: as a superuser, for its oldest
    version, say. Databases are made on it and dropped again.
    """
    with running_servers() as endpoints:
        elsewhere = os.environ.get("FAIRLEAD_TEST_DATABASE_URL")
        yield replace(endpoints, database_url=elsewhere) if elsewhere else endpoints


@pytest.fixture(scope="session")
def valkey_cluster() -> Iterator[str]:
    """The second server of a cluster of three, once per run; what tests ask for lies on the others."""
    with own_cluster() as cluster:
        yield cluster.primaries[1].url


@pytest.fixture(scope="session")
def migrated_url(servers: Endpoints) -> str:
    """A migrated database that nobody connects to: the template of all others."""
    return asyncio.run(migrated_database(servers.database_url))


@pytest.fixture
async def database_settings(servers: Endpoints, migrated_url: str) -> AsyncIterator[DatabaseSettings]:
    """How to reach a migrated database that is this test's own."""
    url = await fresh_database(servers.database_url, template=database_name(migrated_url))
    yield settings_of(url)
    await drop_database(servers.database_url, url)


@pytest.fixture
async def database(database_settings: DatabaseSettings) -> AsyncIterator[Database]:
    """A connected, migrated database that is this test's own."""
    opened = await Database.open(database_settings)
    yield opened
    await opened.close()
