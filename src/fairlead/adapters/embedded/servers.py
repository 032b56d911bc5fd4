"""The embedded servers as a process that uses them sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from fairlead.adapters.embedded.account import explain_os_errors
from fairlead.adapters.embedded.flock import POLL_S, is_locked, lock_file
from fairlead.adapters.embedded.layout import SERVER_NAMES, Endpoints, Layout
from fairlead.adapters.embedded.readiness import postgres_answers, valkey_answers
from fairlead.adapters.embedded.server_process import START_TIMEOUT_S
from fairlead.adapters.embedded.server_settings import checked_settings
from fairlead.adapters.embedded.wheels import postgres_wheel, valkey_wheel
from fairlead.errors import DependencyUnavailableError

__all__ = ["EmbeddedServers"]

STOP_TIMEOUT_S = 90.0  # each server may take as long as all its stop_signals together
# The variables that Python may need to start. The supervisor outlives this process and gets no others.
INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "TMPDIR",
    "VIRTUAL_ENV",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
)


class EmbeddedServers:
    """Both servers of one root folder, which run while any process holds them.

    The hold begins with `start`. It ends with `release`, with `stop`, or with the process, however that ends.
    A child that the process forks shares the hold. Not thread-safe.
    """

    def __init__(self, root: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """Check *settings*; nothing is created or started yet.

        Args:
            root: The folder that all processes with the same servers name.
            settings: Settings of PostgreSQL, and of Valkey with the prefix ``valkey.``. They apply only if
                this process starts the servers.

        Raises:
            InvalidInputError: *settings* hold what cannot be a setting.
        """
        checked_settings(settings)
        self._settings = dict(settings or {})
        self._layout = Layout(root.resolve())
        self._hold: int | None = None

    def __enter__(self) -> Endpoints:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def start(self) -> Endpoints:
        """Adopt or start both servers, and block until they answer, 30 s at most.

        A second call checks that they still answer.

        Raises:
            DependencyUnavailableError: A wheel is not installed, or a server cannot run.
        """
        deadline_mono = time.monotonic() + START_TIMEOUT_S
        self._layout.make()
        self._take_hold()
        try:
            return self._wait_for_answers(deadline_mono)
        except BaseException:
            self._drop_hold()
            raise

    def release(self) -> None:
        """End the hold of this process. After the last one the servers stop; the call does not wait for that."""
        if self._hold is None:
            return
        try:
            if not is_locked(self._layout.supervisor_lock):
                self._launch_supervisor()  # it was killed; without one the servers would run for ever
        finally:
            self._drop_hold()

    def stop(self) -> None:
        """Stop both servers, even if other processes use them, and wait until they have ended, 90 s at most.

        Raises:
            DependencyUnavailableError: They still run then.
        """
        self._drop_hold()
        layout = self._layout
        deadline_mono = time.monotonic() + STOP_TIMEOUT_S
        requested = False
        while True:
            supervised = is_locked(layout.supervisor_lock)
            if not supervised and not any(is_locked(layout.guard(name)) for name in SERVER_NAMES):
                layout.stop_request.unlink(missing_ok=True)
                return
            if not (requested and supervised):
                layout.stop_request.touch()
                requested = True
            if not supervised:
                self._launch_supervisor()  # it was killed; the new one adopts the servers and stops them
            if time.monotonic() > deadline_mono:
                raise self._unusable(f"do not stop within {STOP_TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    def _take_hold(self) -> None:
        """Take the shared lock that keeps the servers running, unless this process has it."""
        if self._hold is not None:
            return
        with explain_os_errors(f"cannot use the folder {self._layout.root}"):
            # Waits only while a supervisor stops the servers after their last user.
            self._hold = lock_file(self._layout.users_lock, shared=True, timeout_s=STOP_TIMEOUT_S)
        if self._hold is None:
            raise self._unusable(f"have been stopping for more than {STOP_TIMEOUT_S:g} s")

    def _drop_hold(self) -> None:
        """Release the shared lock. The supervisor stops the servers once no process has it."""
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    def _wait_for_answers(self, deadline_mono: float) -> Endpoints:
        launched = False
        while True:
            supervised = is_locked(self._layout.supervisor_lock)
            endpoints = self._layout.read_endpoints() if supervised else None
            if endpoints and postgres_answers(endpoints.database_url) and valkey_answers(endpoints.redis_url):
                return endpoints
            if not supervised:
                failure = self._layout.read_failure() if launched else None  # not that of an earlier run
                if failure:
                    raise failure
                self._launch_supervisor()
                launched = True
            if time.monotonic() > deadline_mono:
                raise self._unusable(f"do not answer within {START_TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    def _launch_supervisor(self) -> None:
        postgres_wheel().program("postgres")  # a missing program raises here, with a hint, not in the log
        valkey_wheel().program("valkey-server")
        module = "fairlead.adapters.embedded.supervisor"
        log = self._layout.open_log("supervisor")
        try:
            process = subprocess.run(
                [sys.executable, "-m", module, str(self._layout.root), json.dumps(self._settings)],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                umask=0o077,
                start_new_session=True,
                timeout=START_TIMEOUT_S,
            )
        finally:
            os.close(log)
        if process.returncode != 0:
            raise self._unusable("have no supervisor because it does not start")

    def _unusable(self, problem: str) -> DependencyUnavailableError:
        layout = self._layout
        tail = layout.log_tail("supervisor", *SERVER_NAMES)
        return DependencyUnavailableError(
            f"the embedded servers in {layout.root} {problem}\n{tail}\n",
            hint="see the logs above, or set DATABASE_URL and REDIS_URL to servers of your own",
        )


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    import_folders = [os.path.abspath(path) for path in sys.path]  # so that it imports the same modules
    return inherited | {"PYTHONPATH": os.pathsep.join(import_folders), "PYTHONUTF8": "1"}
