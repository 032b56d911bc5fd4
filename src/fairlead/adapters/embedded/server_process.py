"""A server process that outlives the process that started it, and is found again without pids.

The server inherits a locked file, its guard. A held guard means that the server or a child of it runs, so
the server is adopted. A free guard means that all of them have ended, so a new server may start on the data.
A pid is needed only to send a signal. It is read from the server's own pid file while the guard is held.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fairlead.adapters.embedded.account import explain_os_errors
from fairlead.adapters.embedded.flock import POLL_S, is_locked, lock_file
from fairlead.adapters.embedded.home import Home
from fairlead.adapters.embedded.wheels import Wheel
from fairlead.errors import DependencyUnavailableError

__all__ = ["START_TIMEOUT_S", "ManagedServer"]

START_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 10.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}  # without the PG* variables of the user


class ManagedServer(ABC):
    """One server of one root folder, which can be started or adopted, stopped and killed. Not thread-safe.

    Attributes:
        stop_signals: The signals of `stop` in order, each with the seconds to wait for its effect.
    """

    name: ClassVar[str]
    stop_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]]

    def __init__(self, root: Path, wheel: Wheel) -> None:
        self.home = Home(root)
        self._wheel = wheel
        self._child: subprocess.Popen[bytes] | None = None
        self._guard = self.home.layout.guard(self.name)

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL that a client connects to."""

    @abstractmethod
    def answers(self) -> bool:
        """Return whether the server accepts requests now."""

    @abstractmethod
    def _prepare(self, wheel: Wheel, guard: int) -> Sequence[str | Path]:
        """Prepare the server's data and return its command line.

        Called while this process holds the guard, so no server runs. *guard* is the descriptor of the guard,
        for programs that must inherit it.
        """

    @property
    @abstractmethod
    def _pid_file(self) -> Path:
        """The file to which the server writes its pid, in the first line."""

    def alive(self) -> bool:
        """Return whether the server, or a child that it left behind, runs."""
        if self._child is not None and self._child.poll() is None:
            return True  # true even if the root folder, and the guard with it, was deleted
        return is_locked(self._guard)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Adopt the running server or start one, and wait until it answers.

        Returns:
            The URL of the server.

        Raises:
            DependencyUnavailableError: The server ended, or did not answer within *timeout_s* (default
                30 s). The message holds the end of its log.
        """
        deadline_mono = time.monotonic() + timeout_s
        started = False
        while not self.answers():
            if not self.alive():
                if started:
                    raise self._unusable("ended while it started")
                started = self._start_unless_alive()
            if time.monotonic() > deadline_mono:
                raise self._unusable(f"runs, but does not answer within {timeout_s:g} s")
            time.sleep(POLL_S)
        return self.url

    def stop(self) -> None:
        """Stop the server with each of `stop_signals` in turn, until it and its children have ended.

        Raises:
            DependencyUnavailableError: It still runs after the last signal.
        """
        for signum, wait_s in self.stop_signals:
            if self._ends_after(signum, wait_s):
                return
        raise self._unusable("does not stop")

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash would, and wait until its children have ended too.

        Raises:
            DependencyUnavailableError: A child still runs after 10 s.
        """
        if not self._ends_after(signal.SIGKILL, KILL_TIMEOUT_S):
            raise self._unusable("was killed, but its children still run")

    def pid(self) -> int | None:
        """Return the pid of the server, or None if it does not run or has not written its pid yet."""
        if self._child is not None and self._child.poll() is None:
            return self._child.pid
        if not is_locked(self._guard):
            return None
        try:
            pid = int(self._pid_file.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if pid > 1 else None  # os.kill(-1) would signal every process

    def _ends_after(self, signum: signal.Signals, wait_s: float) -> bool:
        """Send *signum* to the server and return whether it and its children end within *wait_s*."""
        deadline_mono = time.monotonic() + wait_s
        signalled = False
        while self.alive():
            if not signalled and (pid := self.pid()) is not None:
                signalled = self._send(pid, signum)
            if time.monotonic() > deadline_mono:
                return False
            time.sleep(POLL_S)
        return True

    @staticmethod
    def _send(pid: int, signum: signal.Signals) -> bool:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            return False
        return True

    def _start_unless_alive(self) -> bool:
        """Start the server and return True; return False if its guard is held, so one runs already."""
        guard = lock_file(self._guard)
        if guard is None:
            return False
        log = self.home.layout.open_log(self.name)
        try:
            with explain_os_errors(f"cannot start the embedded {self.name}"):
                wheel = self._wheel.usable_by(self.home.account, self.home.servers / f"{self.name}-wheel")
                self._pid_file.unlink(missing_ok=True)  # we hold the guard, so its server has ended
                self._child = subprocess.Popen(
                    self._prepare(wheel, guard),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(guard,),
                    env=ENVIRONMENT,
                    cwd="/",
                    umask=0o077,
                    start_new_session=True,  # so that Ctrl-C in the terminal does not reach the server
                    **self.home.account.popen_options(),
                )
        finally:
            os.close(log)
            os.close(guard)
        return True

    def _run(self, command: Sequence[str | Path], guard: int, stdin: str = "") -> str:
        """Run a program that prepares the server's data, under the server's account.

        It inherits *guard* like the server. If this process is killed meanwhile, no server starts on the data
        until the program has ended.

        Returns:
            What the program wrote to stderr.

        Raises:
            DependencyUnavailableError: It failed.
        """
        process: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            pass_fds=(guard,),
            env=ENVIRONMENT,
            cwd="/",
            umask=0o077,
            timeout=START_TIMEOUT_S,
            **self.home.account.popen_options(),
        )
        if process.returncode != 0:
            program, output = Path(command[0]).name, process.stderr.strip() or process.stdout.strip()
            raise DependencyUnavailableError(
                f"{program} of the embedded {self.name} failed: {output}",
                hint="set DATABASE_URL to a server of your own if this cannot be repaired",
            )
        return process.stderr

    def _unusable(self, problem: str) -> DependencyUnavailableError:
        layout = self.home.layout
        return DependencyUnavailableError(
            f"the embedded {self.name} in {layout.root} {problem}\n{layout.log_tail(self.name)}\n",
            hint="see the log above, or set DATABASE_URL and REDIS_URL to servers of your own",
        )
