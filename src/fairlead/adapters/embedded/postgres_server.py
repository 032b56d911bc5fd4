"""The embedded PostgreSQL: one cluster, one database `fairlead`, a Unix socket, no TCP."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead.adapters.embedded.server_process import ManagedServer
from fairlead.adapters.embedded.server_settings import checked_settings
from fairlead.adapters.embedded.wheels import Wheel, postgres_wheel
from fairlead.adapters.embedded.wire import postgres_answers
from fairlead.errors import DependencyUnavailableError

__all__ = ["EmbeddedPostgres"]

DATABASE = "fairlead"
DATABASE_CREATE = Path(__file__).with_name("database_create.sql")
USER = "postgres"
PORT = "5432"  # only part of the socket's name
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
    """PostgreSQL of one root folder. *settings* win over the defaults; who starts the server sets them."""

    name = "postgres"
    # fast: ends sessions; immediate: no checkpoint, recovers at the next start; then by force
    stop_signals = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))

    def __init__(self, root: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """Raises DependencyUnavailableError without the wheel, InvalidInputError for an impossible setting."""
        super().__init__(root, postgres_wheel())
        self._settings = SETTINGS | checked_settings(settings)[0]
        self._data = self.home.folder(self.name) / "data"

    @property
    def url(self) -> str:
        """For asyncpg and psycopg alike. The port is named, or PGPORT of the user would be taken."""
        return f"postgresql://{USER}@/{DATABASE}?host={self.home.sockets()}&port={PORT}"

    def version(self) -> str:
        """Like '18.4'."""
        return self._wheel.version("postgres")

    def answers(self) -> bool:
        """Whether the database takes connections now."""
        return postgres_answers(self.url)

    @property
    def _pid_file(self) -> Path:
        return self._data / "postmaster.pid"

    def _prepare(self, wheel: Wheel, guard: int) -> Sequence[str | Path]:
        if not self._data.exists():
            self._make_cluster(wheel, guard)
        sockets = self.home.sockets()
        # The last server may have been killed. Its pid can be another process's by now, which PostgreSQL
        # would take for a living server; the guard has told that there is none.
        (sockets / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
        settings = self._settings | {"unix_socket_directories": str(sockets)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [wheel.program("postgres"), "-D", self._data, *options]

    def _make_cluster(self, wheel: Wheel, guard: int) -> None:
        unfinished = self._data.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)  # of a start that was killed
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
        said = self._run(single, guard, DATABASE_CREATE.read_text() + "\n")
        if "ERROR:" in said or "FATAL:" in said:  # the single-user mode ends with 0 all the same
            raise DependencyUnavailableError(f"cannot create the database {DATABASE}: {said.strip()}")
        unfinished.rename(self._data)  # last: a cluster under its final name is complete
