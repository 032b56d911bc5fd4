"""A worker of the demo: `fairlead run` as a process of its own, which cannot outlive the demo."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fairlead.demo.child_process import ChildProcess
from fairlead.errors import DependencyUnavailableError

STOP_S = 20.0
FILTERED_PREFIXES = ("FAIRLEAD_", "DATABASE_URL", "REDIS_URL", "LOG_")
"""Settings of your own fairlead, which the demo must not pass on: it must never touch your database."""
_PR_SET_PDEATHSIG = 1


class WorkerProcess(ChildProcess):
    """One `fairlead run --config FILE`, which works as soon as its session is in the database."""

    def __init__(self, name: str, config: Path, log: Path) -> None:
        super().__init__(
            log,
            *("-m", "fairlead", "run", "--config", str(config)),
            environ=child_environment(os.environ),
            before_exec=_end_with_parent(),
        )
        self.name = name

    @property
    def ending(self) -> str:
        """How it ended, in a word."""
        return "killed" if self.was_killed else "stopped"

    def check(self) -> None:
        """Raise DependencyUnavailableError with the end of its log if it has ended."""
        if not self.is_running:
            raise DependencyUnavailableError(
                f"{self.name} of the demo ended by itself:\n{self.log_tail()}",
                hint="`fairlead doctor` may show why; `fairlead demo --keep` keeps the logs",
            )


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without what would change the worker's settings."""
    return {name: value for name, value in environ.items() if not name.startswith(FILTERED_PREFIXES)}


def _end_with_parent() -> Callable[[], None] | None:
    """Return a function for the child that makes the kernel end it with its parent; None if not on Linux."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent ended before the call
            os._exit(1)

    return set_death_signal
