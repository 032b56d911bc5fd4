"""The process that starts the servers of one root folder, restarts them, and stops them after their last user.

The first process that uses the servers starts it (servers.py); `supervisor.lock` allows one for each root.
It stops the servers once it gets `users.lock` exclusively, because then no user is left. It holds that lock
until they have ended, so a new user waits and then finds a clean folder. If the supervisor itself is killed,
the servers continue, and the next supervisor adopts them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from fairlead.adapters.embedded.flock import lock_file, open_lock, try_flock, unlock
from fairlead.adapters.embedded.layout import Endpoints, Layout
from fairlead.adapters.embedded.postgres_server import EmbeddedPostgres
from fairlead.adapters.embedded.server_process import ManagedServer
from fairlead.adapters.embedded.valkey_server import EmbeddedValkey
from fairlead.errors import DependencyUnavailableError, FairleadError

__all__ = ["main"]

TICK_S = 0.1
LINGER_S = 0.3  # so that commands that follow each other find the servers still running
MAX_RESTARTS = 5
RESTART_WINDOW_S = 60.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("fairlead.embedded")


class Supervisor:
    """The owner of both servers of one root folder."""

    def __init__(self, root: Path, settings: Mapping[str, str]) -> None:
        self.layout = Layout(root)
        self.postgres = EmbeddedPostgres(root, settings=settings)
        self.valkey = EmbeddedValkey(root, settings=settings)
        self.servers: tuple[ManagedServer, ...] = (self.postgres, self.valkey)
        self._users = open_lock(self.layout.users_lock)  # open: works if the folder is deleted
        self._restarts_mono: deque[float] = deque()

    def run(self) -> None:
        """Run both servers until no user is left or a stop is requested, then stop them."""
        try:
            if not self.layout.stop_request.exists():
                self._start_and_publish()
                self._watch()
        finally:
            self._stop()

    def _start_and_publish(self) -> None:
        for server in self.servers:
            self.layout.trim_log(server.name)
            server.start()
        endpoints = Endpoints(
            database_url=self.postgres.url,
            redis_url=self.valkey.url,
            postgres_version=self.postgres.version(),
            valkey_version=self.valkey.version(),
        )
        data = str(self.postgres.home.servers)
        self.layout.write_endpoints(endpoints, data=data, supervisor_pid=os.getpid())
        log.info(
            "postgres %s and valkey %s answer, data in %s",
            endpoints.postgres_version,
            endpoints.valkey_version,
            data,
        )

    def _watch(self) -> None:
        idle_since_mono: float | None = None
        while not self.layout.stop_request.exists():
            if not try_flock(self._users):
                idle_since_mono = None
            else:
                idle_since_mono = idle_since_mono or time.monotonic()
                if time.monotonic() - idle_since_mono >= LINGER_S:
                    return  # with the lock held: a new user waits until the servers have ended
                unlock(self._users)
            self._restart_dead_servers()
            time.sleep(TICK_S)

    def _restart_dead_servers(self) -> None:
        for server in self.servers:
            self.layout.trim_log(server.name)
            if not server.alive():
                self._restart(server)

    def _restart(self, server: ManagedServer) -> None:
        log.warning("%s has died, starting it again", server.name)
        self._count_restart(server.name)
        try:
            server.start()
        except DependencyUnavailableError:
            if server.alive():
                raise
            log.exception("%s died again", server.name)  # perhaps killed again: the next round counts it

    def _count_restart(self, name: str) -> None:
        """Record a restart of *name* and raise DependencyUnavailableError if there were too many of late."""
        now_mono = time.monotonic()
        self._restarts_mono.append(now_mono)
        while now_mono - self._restarts_mono[0] > RESTART_WINDOW_S:
            self._restarts_mono.popleft()
        if len(self._restarts_mono) > MAX_RESTARTS:
            raise DependencyUnavailableError(
                f"the embedded servers died {len(self._restarts_mono)} times in {RESTART_WINDOW_S:g} s, "
                f"{name} last\n{self.layout.log_tail(name)}\n",
                hint="see the log above",
            )

    def _stop(self) -> None:
        for signum in STOP_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)  # a second signal must not interrupt the stop
        self.layout.endpoints.unlink(missing_ok=True)
        for server in self.servers:
            try:
                server.stop()
            except FairleadError:
                log.exception("%s could not be stopped", server.name)
        self.layout.stop_request.unlink(missing_ok=True)
        log.info("stopped")


def main(arguments: Sequence[str]) -> int:
    """Become the supervisor of a root folder in the background, unless there is one already.

    Args:
        arguments: The root folder, and the settings as JSON.

    Returns:
        The exit code: 0 in the parent process, and if another supervisor runs.
    """
    root, settings = Path(arguments[0]), json.loads(arguments[1])
    layout = Layout(root)
    if lock_file(layout.supervisor_lock, timeout_s=TICK_S) is None:
        return 0
    layout.failure.unlink(missing_ok=True)
    layout.endpoints.unlink(missing_ok=True)  # left by a supervisor that was killed
    if os.fork():  # the child inherits the lock; init reaps it when it ends, so it leaves no zombie
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for signum in STOP_SIGNALS:
        signal.signal(signum, _exit)
    return _supervise(layout, settings)


def _supervise(layout: Layout, settings: Mapping[str, str]) -> int:
    layout.trim_log("supervisor")
    try:
        Supervisor(layout.root, settings).run()
    except FairleadError as error:
        log.exception("the embedded servers have failed")
        layout.write_failure(error.message, error.hint)
        return 1
    except Exception as error:
        layout.write_failure(f"the supervisor failed: {error!r}", f"see {layout.log('supervisor')}")
        raise
    return 0


def _exit(_signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
