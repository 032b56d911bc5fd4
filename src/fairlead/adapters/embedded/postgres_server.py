"""The embedded PostgreSQL: one cluster, one database `fairlead`, a Unix socket, no TCP."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead.adapters.embedded.readiness import postgres_answers
from fairlead.adapters.embedded.server_process import ManagedServer
from fairlead.adapters.embedded.server_settings import checked_settings
from fairlead.adapters.embedded.wheels import Wheel, postgres_wheel
from fairlead.errors import DependencyUnavailableError

__all__ = ["EmbeddedPostgres"]

DATABASE = "fairlead"
DATABASE_CREATE = Path(__file__).with_name("database_create.sql")
USER = "postgres"
PORT = "5432"  # part of the socket's name; no TCP port is opened
SETTINGS = {
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
}


class EmbeddedPostgres(ManagedServer):
    """The PostgreSQL server of one root folder."""

    name = "postgres"
    # SIGINT ends sessions; SIGQUIT skips the checkpoint, so the next start recovers; SIGKILL forces the end.
    stop_signals = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))

    def __init__(self, root: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """Create the server's folder; `start` starts it.

        Args:
            settings: PostgreSQL settings that override `SETTINGS`. They apply only if this instance starts
                the server, not if it adopts a running one.

        Raises:
            DependencyUnavailableError: The wheel is not installed, or the folder cannot be used.
            InvalidInputError: *settings* hold what cannot be a setting.
        """
        super().__init__(root, postgres_wheel())
        self._settings = SETTINGS | checked_settings(settings)[0]
        self._data = self.home.folder(self.name) / "data"

    @property
    def url(self) -> str:
        """The DSN, valid for asyncpg and psycopg. It names the port because PGPORT would apply otherwise."""
        return f"postgresql://{USER}@/{DATABASE}?host={self.home.sockets()}&port={PORT}"

    def version(self) -> str:
        """Return the version of the program, such as '18.4'."""
        return self._wheel.version("postgres")

    def answers(self) -> bool:
        """Return whether the database accepts connections now."""
        return postgres_answers(self.url)

    @property
    def _pid_file(self) -> Path:
        return self._data / "postmaster.pid"

    def _prepare(self, wheel: Wheel, guard: int) -> Sequence[str | Path]:
        if not self._data.exists():
            self._create_cluster(wheel, guard)
        sockets = self.home.sockets()
        # If the last server was killed, its lock file is still there, and its pid may belong to another
        # process by now. PostgreSQL would refuse to start. The free guard proves that no server runs.
        (sockets / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        settings = self._settings | {"unix_socket_directories": str(sockets)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [wheel.program("postgres"), "-D", self._data, *options]

    def _create_cluster(self, wheel: Wheel, guard: int) -> None:
        unfinished = self._data.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a start that was killed
        locale = ["--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--encoding=UTF8"]
        options: list[str | Path] = ["--auth=trust", f"--username={USER}", "--no-instructions", *locale]
        self._run([wheel.program("initdb"), "-D", unfinished, *options], guard)
        single: list[str | Path] = [
            wheel.program("postgres"),
            "--single",
            "-j",
            "-D",
            unfinished,
            "template1",
        ]
        output = self._run(single, guard, DATABASE_CREATE.read_text() + "\n")
        if "ERROR:" in output or "FATAL:" in output:  # single-user mode exits with 0 even then
            raise DependencyUnavailableError(f"cannot create the database {DATABASE}: {output.strip()}")
        unfinished.rename(self._data)  # last, so that a cluster under its final name is complete
