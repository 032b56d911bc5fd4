"""One watcher for all processes of a run, and a word at its end of how long the machine stood still."""

from __future__ import annotations

import time

import pytest

from tests.support.standstill import spans, watching

_BEGAN_S = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a process of pytest-xdist: its parent watches
        return
    config.stash[_BEGAN_S] = time.monotonic()
    watch = watching()
    watch.__enter__()
    config.add_cleanup(lambda: watch.__exit__(None, None, None))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    began_s, ended_s = config.stash[_BEGAN_S], time.monotonic()
    try:
        stood = spans(ended_s)
    except RuntimeError as error:
        terminalreporter.write_line(f"standstills of this machine: {error}", red=True)
        return
    if stood:
        lasted_s = [end_s - begin_s for begin_s, end_s in stood]
        summary = f"{len(stood)} times, {max(lasted_s):.1f} s at most, {sum(lasted_s):.0f} s in all"
        terminalreporter.write_line(
            f"a core of this machine stood still {summary} of {ended_s - began_s:.0f} s"
        )
