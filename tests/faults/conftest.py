"""One nursery for all experiments, a stage for each, and a line for each that fails or never ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from fairlead.adapters.postgres.database import Database
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import begin_test, end_of_test, keep_course
from tests.faults.support.server import OwnServer, own_server
from tests.faults.support.stage import Stage, staged
from tests.support.databases import settings_of
from tools.results import base


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
async def stage(nursery: Nursery, database: Database, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(nursery, database, tmp_path) as stage:
        yield stage


@pytest.fixture(scope="session")
def server() -> Iterator[OwnServer]:
    """A server that may be crashed; whoever ends it starts it again."""
    with own_server() as server:
        yield server


@pytest.fixture
async def shaky(nursery: Nursery, server: OwnServer, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage on that server. After each end its eyes have to be opened anew."""
    database = await Database.open(settings_of(await server.fresh_database()))
    async with staged(nursery, database, tmp_path) as stage:
        yield stage
        await stage.database.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whoever hangs or is killed leaves a line, too."""
    begin_test(_experiment(item), item.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of an experiment that failed before it could conclude there is a line too."""
    report = yield
    failure = call.excinfo.exconly(tryshort=True).partition("\n")[0] if call.excinfo else ""
    failure_text = failure if report.failed else None
    if call.when == "call":
        end_of_test(failure_text)
    if call.when == "call" or not report.passed:
        keep_course(
            _experiment(item),
            item.name,
            failure_text if call.when == "call" else failure_text and f"{call.when}: {failure_text}",
        )
    return report


def _experiment(item: pytest.Item) -> str:
    """``E01`` of tests/faults/test_e01_kill_storm.py."""
    return base(item.path.stem.removeprefix("test_")).upper()
