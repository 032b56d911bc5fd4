"""`pytest --docs`: prints how many blocks of the pages ran, and fails if one did not (see pages.py).

Each process of a run reports its blocks, and the main process adds them up.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.pages import BlockPosition, have_run, to_run

_RAN = pytest.StashKey[set[BlockPosition]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--docs", action="store_true", help="fail where a block of the pages did not run")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RAN] = set()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the blocks of a process of pytest-xdist that has ended."""
    blocks = getattr(node, "workeroutput", {}).get("blocks", ())
    node.config.stash[_RAN].update((page, line) for page, line in blocks)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not config.getoption("--docs"):
        return
    ran = config.stash[_RAN]
    ran |= have_run()
    if hasattr(config, "workeroutput"):
        config.workeroutput["blocks"] = sorted(ran)
    elif to_run() - ran and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--docs"):
        return
    ran, expected = config.stash[_RAN], to_run()
    terminalreporter.section("blocks of the pages")
    terminalreporter.write_line(
        f"{len(expected & ran)} of {len(expected)} blocks of {len({page for page, _ in expected})} pages ran"
    )
    for page, line in sorted(expected - ran):
        terminalreporter.write_line(f"did not run: {page}:{line}", red=True)
