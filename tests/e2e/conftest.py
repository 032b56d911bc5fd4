"""The command line on a database of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from tests.support.cli import MASTER_KEY, Shell, Spawner, running_spawner


@pytest.fixture(autouse=True)
def private() -> Iterator[None]:
    """Settings and imports with secrets are refused where others can read them."""
    umask_before = os.umask(0o077)
    yield
    os.umask(umask_before)


@pytest.fixture(scope="session")
def spawner() -> Iterator[Spawner]:
    """Starts commands, once per run."""
    with running_spawner() as spawner:
        yield spawner


@pytest.fixture
def bare(tmp_path: Path, spawner: Spawner) -> Shell:
    """Without any store: DATABASE_URL leads nowhere, so that nothing is started by mistake."""
    nowhere = "postgresql://nobody:canary-in-url@127.0.0.1:1/none"
    shell = Shell(tmp_path, spawner, {"DATABASE_URL": nowhere, "FAIRLEAD_MASTER_KEY": MASTER_KEY})
    shell.canaries |= {"canary-in-url", MASTER_KEY.partition(":")[2]}
    return shell


@pytest.fixture
def shell(bare: Shell, database_settings: DatabaseSettings) -> Shell:
    """On a migrated database of this test's own."""
    bare.environ["DATABASE_URL"] = database_settings.dsn
    bare.environ["FAIRLEAD_DATABASE__SCHEMA_NAME"] = database_settings.schema or ""
    return bare
