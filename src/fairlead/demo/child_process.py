"""A Python child process of the demo or of a load, with its output in a log file."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path


class ChildProcess:
    """One child: ``python ARGUMENTS``, in a session of its own.

    Ctrl-C in a terminal reaches the parent only, which then ends its children.

    Args:
        log: Its stdout and stderr are appended to this file; several children may share it.
        environ: Its environment (default: this process's).
        before_exec: Called in the child before it becomes Python.
    """

    def __init__(
        self,
        log: Path,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        before_exec: Callable[[], None] | None = None,
    ) -> None:
        self.log = log
        self._arguments = arguments
        self._environ = environ
        self._before_exec = before_exec
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 before `start`."""
        return self._child.pid if self._child is not None else 0

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._child is not None and self._child.returncode is None

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self._child is not None and self._child.returncode == -signal.SIGKILL

    async def start(self) -> None:
        """Start it."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, *self._arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=self._environ,
                start_new_session=True,
                preexec_fn=self._before_exec,
            )
        finally:
            os.close(descriptor)

    def terminate(self) -> None:
        """Send SIGTERM if it runs."""
        if self._child is not None and self.is_running:
            self._child.terminate()

    async def kill(self) -> None:
        """Send SIGKILL if it runs, and wait until it has ended."""
        if self._child is not None:
            if self.is_running:
                self._child.kill()
            await self._child.wait()

    async def wait(self, within_s: float) -> int:
        """Return its exit code once it has ended; kill it after *within_s*."""
        if self._child is None:
            return 0
        try:
            async with asyncio.timeout(within_s):
                return await self._child.wait()
        except TimeoutError:
            await self.kill()
            return -signal.SIGKILL

    def log_tail(self, size: int = 2000) -> str:
        """Return the last characters of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-size:].strip()
