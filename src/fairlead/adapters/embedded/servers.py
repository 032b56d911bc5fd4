"""The servers of one root folder, as one user of them sees it."""

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
from fairlead.adapters.embedded.server_process import START_TIMEOUT_S
from fairlead.adapters.embedded.server_settings import checked_settings
from fairlead.adapters.embedded.wheels import postgres_wheel, valkey_wheel
from fairlead.adapters.embedded.wire import postgres_answers, valkey_answers
from fairlead.errors import DependencyUnavailableError

__all__ = ["EmbeddedServers"]

STOP_TIMEOUT_S = 90.0  # both servers may need all their patience (stop_signals)
# What Python may need to start. Nothing else of the environment goes into a process that outlives us.
PASSED_ON = ("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class EmbeddedServers:
    """A user's hold on the servers of *root*: while it lasts they run, whoever started them.

    *settings*: extra PostgreSQL settings, and Valkey's behind ``valkey.``; those of the user who starts a
    server count. A hold ends with `release`, with the process, however that dies, or with `stop`.
    A child that the process forks shares the hold. Not for several threads at once.
    """

    def __init__(self, root: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """Touches nothing yet. Raises InvalidInputError for an impossible setting."""
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
        """Adopt or start both servers and give where they answer. Asked again, it makes sure that they do.

        Blocks up to 30 s. Raises DependencyUnavailableError if a wheel is missing or a server cannot run.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        self._layout.make()
        self._take_hold()
        try:
            return self._wait_for_answers(deadline)
        except BaseException:
            self._drop_hold()
            raise

    def release(self) -> None:
        """Give up this user's hold. The last one to do so lets the servers stop; nobody waits for that."""
        if self._hold is None:
            return
        try:
            if not is_locked(self._layout.supervisor_lock):
                self._launch_supervisor()  # it was killed: without one the servers would run for ever
        finally:
            self._drop_hold()

    def stop(self) -> None:
        """Stop both servers now, whoever uses them, and wait until they are gone (up to 90 s)."""
        self._drop_hold()
        layout = self._layout
        deadline = time.monotonic() + STOP_TIMEOUT_S
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
                self._launch_supervisor()  # it was killed; the new one finds the servers and the request
            if time.monotonic() > deadline:
                raise self._no_answer(f"do not stop within {STOP_TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    def _take_hold(self) -> None:
        if self._hold is not None:
            return
        with explain_os_errors(f"cannot use the folder {self._layout.root}"):
            # Refused only while a supervisor stops the servers of users who are gone.
            self._hold = lock_file(self._layout.users_lock, shared=True, timeout_s=STOP_TIMEOUT_S)
        if self._hold is None:
            raise self._no_answer(f"are being stopped for more than {STOP_TIMEOUT_S:g} s")

    def _drop_hold(self) -> None:
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    def _wait_for_answers(self, deadline: float) -> Endpoints:
        launched = False
        while True:
            supervised = is_locked(self._layout.supervisor_lock)
            endpoints = self._layout.read_endpoints() if supervised else None
            if endpoints and postgres_answers(endpoints.database_url) and valkey_answers(endpoints.redis_url):
                return endpoints
            if not supervised:
                failure = self._layout.read_failure() if launched else None  # an older one is history
                if failure:
                    raise failure
                self._launch_supervisor()
                launched = True
            if time.monotonic() > deadline:
                raise self._no_answer(f"do not answer within {START_TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    def _launch_supervisor(self) -> None:
        postgres_wheel().program("postgres")  # what is not installed is told here, with its hint
        valkey_wheel().program("valkey-server")
        module = "fairlead.adapters.embedded.supervisor"
        log = self._layout.open_log("supervisor")
        try:
            done = subprocess.run(
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
        if done.returncode != 0:
            raise self._no_answer("have no supervisor: it does not start")

    def _no_answer(self, what: str) -> DependencyUnavailableError:
        layout = self._layout
        tail = layout.log_tail("supervisor", *SERVER_NAMES)
        return DependencyUnavailableError(
            f"the embedded servers in {layout.root} {what}\n{tail}\n",
            hint="the logs above say why; or set DATABASE_URL and REDIS_URL to servers of your own",
        )


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    seen = [os.path.abspath(path) for path in sys.path]  # it finds the modules that we find
    return kept | {"PYTHONPATH": os.pathsep.join(seen), "PYTHONUTF8": "1"}
