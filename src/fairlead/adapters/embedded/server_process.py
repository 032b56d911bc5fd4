"""A server process that outlives whoever started it, and can be found again without pids.

The server inherits a locked file, its guard. Guard held: the server or a child of it lives, so it is
adopted. Guard free: all of them are dead, so a new one may start on the data. A pid is only needed to
send a signal; it is read from the server's own file, and only while the guard is held.
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
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}  # no PG* variable of the user leaks in


class ManagedServer(ABC):
    """One server of one root folder: adopt or start, stop, kill. Not for several threads at once."""

    name: ClassVar[str]
    stop_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]]  # each with the seconds it is given

    def __init__(self, root: Path, wheel: Wheel) -> None:
        self.home = Home(root)
        self._wheel = wheel
        self._child: subprocess.Popen[bytes] | None = None
        self._guard = self.home.layout.guard(self.name)

    @property
    @abstractmethod
    def url(self) -> str:
        """What a client connects to."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server takes work now."""

    @abstractmethod
    def _prepare(self, wheel: Wheel, guard: int) -> Sequence[str | Path]:
        """Make ready what the server needs, and give its command line. The guard is ours: nothing runs."""

    @property
    @abstractmethod
    def _pid_file(self) -> Path:
        """Where the server writes its pid, in the first line."""

    def alive(self) -> bool:
        """Whether the server, or a child it left behind, runs."""
        if self._child is not None and self._child.poll() is None:
            return True  # also where the root folder was deleted under us
        return is_locked(self._guard)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Adopt the living server or start it, wait until it answers, give its URL.

        Raises DependencyUnavailableError with the end of the server's log if it ends or stays silent.
        """
        deadline = time.monotonic() + timeout_s
        started = False
        while not self.answers():
            if not self.alive():
                if started:
                    raise self._unusable("ended while it started")
                started = self._start_unless_alive()
            if time.monotonic() > deadline:
                raise self._unusable(f"runs, but does not answer within {timeout_s:g} s")
            time.sleep(POLL_S)
        return self.url

    def stop(self) -> None:
        """Stop the server, politely first. Returns when it and its children are gone."""
        for signum, wait_s in self.stop_signals:
            if self._gone_after(signum, wait_s):
                return
        raise self._unusable("does not stop")

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a fault would, and wait until its children are gone too."""
        if not self._gone_after(signal.SIGKILL, KILL_TIMEOUT_S):
            raise self._unusable("was killed, but children of it live on")

    def pid(self) -> int | None:
        """The pid of the server, or None if it is not known (yet) or does not run."""
        if self._child is not None and self._child.poll() is None:
            return self._child.pid
        if not is_locked(self._guard):
            return None
        try:
            pid = int(self._pid_file.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if pid > 1 else None  # the file is the server's: -1 would be a signal to everybody

    def _gone_after(self, signum: signal.Signals, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        signalled = False
        while self.alive():
            if not signalled and (pid := self.pid()) is not None:
                signalled = self._send(pid, signum)
            if time.monotonic() > deadline:
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
        guard = lock_file(self._guard)
        if guard is None:
            return False
        log = self.home.layout.open_log(self.name)
        try:
            with explain_os_errors(f"cannot start the embedded {self.name}"):
                wheel = self._wheel.usable_by(self.home.account, self.home.servers / f"{self.name}-wheel")
                self._pid_file.unlink(missing_ok=True)  # the guard is ours: whoever wrote it is dead
                self._child = subprocess.Popen(
                    self._prepare(wheel, guard),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(guard,),
                    env=ENVIRONMENT,
                    cwd="/",
                    umask=0o077,
                    start_new_session=True,  # Ctrl-C in the user's terminal is not for the server
                    **self.home.account.popen_options(),
                )
        finally:
            os.close(log)
            os.close(guard)
        return True

    def _run(self, command: Sequence[str | Path], guard: int, words: str = "") -> str:
        """Run a helper program under the server's account; give what it said on stderr.

        It inherits the guard like the server: if we are killed, nobody starts on its data beside it.
        """
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            check=False,
            input=words,
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
        if done.returncode != 0:
            program = Path(command[0]).name
            raise DependencyUnavailableError(
                f"{program} of the embedded {self.name} failed: {done.stderr.strip() or done.stdout.strip()}",
                hint="set DATABASE_URL to a server of your own if this cannot be mended",
            )
        return done.stderr

    def _unusable(self, what: str) -> DependencyUnavailableError:
        layout = self.home.layout
        return DependencyUnavailableError(
            f"the embedded {self.name} in {layout.root} {what}\n{layout.log_tail(self.name)}\n",
            hint="the log above says why; or set DATABASE_URL and REDIS_URL to servers of your own",
        )
