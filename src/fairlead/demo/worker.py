"""A worker of the demo: `fairlead run` as a process of its own, which cannot outlive the demo."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fairlead.errors import DependencyUnavailableError

STOP_S = 20.0
NOT_PASSED_ON = ("FAIRLEAD_", "DATABASE_URL", "REDIS_URL", "LOG_")
"""Settings of the user's own fairlead: the demo must never touch their database."""
_PR_SET_PDEATHSIG = 1


class WorkerProcess:
    """One `fairlead run --config FILE`; what it says goes to *log*."""

    def __init__(self, name: str, config: Path, log: Path) -> None:
        self.name = name
        self.log = log
        self._config = config
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 before it was started."""
        return self._child.pid if self._child is not None else 0

    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self._child is not None and self._child.returncode is None

    @property
    def end(self) -> str:
        """How it ended, in a word."""
        killed = self._child is not None and self._child.returncode == -signal.SIGKILL
        return "killed" if killed else "stopped"

    async def start(self) -> None:
        """Begin; it works as soon as its session shows up in the database."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "fairlead", "run", "--config", str(self._config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=child_environment(os.environ),
                start_new_session=True,  # Ctrl-C in a terminal is for the demo, which then stops its workers
                preexec_fn=_leash(),
            )
        finally:
            os.close(descriptor)

    async def kill(self) -> None:
        """SIGKILL, and wait until the kernel has buried it."""
        if self._child is not None:
            self._child.kill()
            await self._child.wait()

    def terminate(self) -> None:
        """SIGTERM: ask it to drain."""
        if self._child is not None and self.running:
            self._child.terminate()

    async def ended(self) -> int:
        """Its exit code, once it has ended; after 20 s it is killed."""
        if self._child is None:
            return 0
        try:
            async with asyncio.timeout(STOP_S):
                return await self._child.wait()
        except TimeoutError:
            await self.kill()
            return -signal.SIGKILL

    def check(self) -> None:
        """DependencyUnavailableError, with its last words, if it has ended."""
        if not self.running:
            raise DependencyUnavailableError(
                f"{self.name} of the demo ended by itself:\n{self.last_words()}",
                hint="`fairlead doctor` may tell why; `fairlead demo --keep` keeps the logs",
            )

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* without what would change the worker's settings."""
    return {name: value for name, value in environ.items() if not name.startswith(NOT_PASSED_ON)}


def _leash() -> Callable[[], None] | None:
    """Have the kernel end the child with us, however we end; None where there is no such thing."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we died before the leash was tied
            os._exit(1)

    return tie
