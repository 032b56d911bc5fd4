"""The process that owns the servers of one root: starts them, mends them, stops them with the last user.

Started by the first user (servers.py), one per root by `supervisor.lock`. It ends when it can take
`users.lock` for itself: then no user lives, however they ended. It keeps that lock until the servers are
down, so a user who comes meanwhile waits and finds a clean folder. If the supervisor itself is killed, the
servers go on and the next one adopts them.
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
LINGER_S = 0.3  # commands that follow each other find the servers still up
MOST_RESTARTS = 5
RESTART_WINDOW_S = 60.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("fairlead.embedded")


class Supervisor:
    """Both servers of one root, and the rule when they run."""

    def __init__(self, root: Path, settings: Mapping[str, str]) -> None:
        self.layout = Layout(root)
        self.postgres = EmbeddedPostgres(root, settings=settings)
        self.valkey = EmbeddedValkey(root, settings=settings)
        self.servers: tuple[ManagedServer, ...] = (self.postgres, self.valkey)
        self._users = open_lock(self.layout.users_lock)  # kept open: works though the folder is deleted
        self._restarts: deque[float] = deque()

    def run(self) -> None:
        """Serve until no user is left or somebody asks to stop; then stop both servers."""
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
        idle_since: float | None = None
        while not self.layout.stop_request.exists():
            if not try_flock(self._users):
                idle_since = None
            else:
                idle_since = idle_since or time.monotonic()
                if time.monotonic() - idle_since >= LINGER_S:
                    return  # with the lock: nobody comes in before the servers are down
                unlock(self._users)
            self._mend()
            time.sleep(TICK_S)

    def _mend(self) -> None:
        for server in self.servers:
            self.layout.trim_log(server.name)
            if not server.alive():
                self._restart(server)

    def _restart(self, server: ManagedServer) -> None:
        log.warning("%s is dead, starting it again", server.name)
        self._count_restart(server.name)
        try:
            server.start()
        except DependencyUnavailableError:
            if server.alive():
                raise
            log.exception("%s died again", server.name)  # perhaps killed anew: the count decides

    def _count_restart(self, name: str) -> None:
        now = time.monotonic()
        self._restarts.append(now)
        while now - self._restarts[0] > RESTART_WINDOW_S:
            self._restarts.popleft()
        if len(self._restarts) > MOST_RESTARTS:
            raise DependencyUnavailableError(
                f"the embedded servers died {len(self._restarts)} times in {RESTART_WINDOW_S:g} s, "
                f"{name} the last\n{self.layout.log_tail(name)}\n",
                hint="the log above says why",
            )

    def _stop(self) -> None:
        for signum in STOP_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)  # a second one may not cut the stopping short
        self.layout.endpoints.unlink(missing_ok=True)
        for server in self.servers:
            try:
                server.stop()
            except FairleadError:
                log.exception("%s could not be stopped", server.name)
        self.layout.stop_request.unlink(missing_ok=True)
        log.info("stopped")


def main(arguments: Sequence[str]) -> int:
    """Become the supervisor of a root in the background, or leave it to the one there is.

    Arguments: the root, and the settings as JSON. Gives 0 at once when there is a supervisor.
    """
    root, settings = Path(arguments[0]), json.loads(arguments[1])
    layout = Layout(root)
    if lock_file(layout.supervisor_lock, timeout_s=TICK_S) is None:
        return 0
    layout.failure.unlink(missing_ok=True)
    layout.endpoints.unlink(missing_ok=True)  # of a supervisor that was killed
    if os.fork():  # the child inherits the lock, and is nobody's zombie when it ends
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for signum in STOP_SIGNALS:
        signal.signal(signum, _leave)
    return _supervise(layout, settings)


def _supervise(layout: Layout, settings: Mapping[str, str]) -> int:
    layout.trim_log("supervisor")
    try:
        Supervisor(layout.root, settings).run()
    except FairleadError as error:
        log.exception("the embedded servers cannot go on")
        layout.write_failure(error.message, error.hint)
        return 1
    except Exception as error:
        layout.write_failure(f"the supervisor failed: {error!r}", f"see {layout.log('supervisor')}")
        raise
    return 0


def _leave(_signum: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
