"""The files of one root folder.

users.lock       held shared by each process that uses the servers; exclusively by the supervisor that stops them
supervisor.lock  held exclusively by the supervisor while it runs
postgres.lock    inherited by the server, so free once it and its children have ended; likewise valkey.lock
endpoints.json   the URLs of the servers; exists only while they run
failure.json     the error that ended the last supervisor
stop             asks the supervisor to stop the servers now
servers/         data and sockets (home.py); sometimes a link to a folder that the servers' account can reach
*.log            of supervisor, postgres and valkey
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fairlead._checked_file import read_checked
from fairlead.adapters.embedded.account import explain_os_errors
from fairlead.errors import DependencyUnavailableError

__all__ = ["SERVER_NAMES", "Endpoints", "Layout"]

SERVER_NAMES = ("postgres", "valkey")
TAIL_LINES = 15
LOG_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URLs of the embedded servers, and their versions."""

    database_url: str
    redis_url: str
    postgres_version: str
    valkey_version: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one root folder."""

    root: Path

    @property
    def users_lock(self) -> Path:
        return self.root / "users.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.root / "supervisor.lock"

    @property
    def failure(self) -> Path:
        return self.root / "failure.json"

    @property
    def stop_request(self) -> Path:
        return self.root / "stop"

    @property
    def servers(self) -> Path:
        return self.root / "servers"

    @property
    def endpoints(self) -> Path:
        return self.root / "endpoints.json"

    def guard(self, server: str) -> Path:
        """Return the path of the lock file that *server* inherits."""
        return self.root / f"{server}.lock"

    def log(self, name: str) -> Path:
        """Return the path of the log of a server or of the supervisor."""
        return self.root / f"{name}.log"

    def make(self) -> None:
        """Create the root folder if it is absent. A folder that exists keeps its mode."""
        # If root creates it, the servers' account may pass through it, but not list it. Without this, all
        # data would have to stand in another folder.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        with explain_os_errors(f"cannot use the folder {self.root}"):
            self.root.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.root.mkdir()
            except FileExistsError:
                return
            self.root.chmod(mode)  # mkdir's mode would be reduced by the umask

    def open_log(self, name: str) -> int:
        """Return a descriptor that appends to the log *name*. The caller closes it."""
        return os.open(self.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def trim_log(self, name: str, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        """Copy a log longer than *limit_bytes* (default 16 MiB) to ``*.log.1`` and empty it."""
        path = self.log(name)
        if not path.exists() or path.stat().st_size <= limit_bytes:
            return
        older = path.with_name(path.name + ".1")
        older.write_bytes(path.read_bytes())
        os.truncate(path, 0)  # the writer has the file open for appending, and continues at the new end

    def log_tail(self, *names: str) -> str:
        """Return the last lines of the named logs, for an error message."""
        parts = []
        for name in names:
            if (path := self.log(name)).exists():
                lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
                parts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(parts)

    def write_endpoints(self, endpoints: Endpoints, **more: str | int) -> None:
        """Publish *endpoints*, and *more* for a human reader of the file, in one atomic step."""
        _write_atomically(self.endpoints, asdict(endpoints) | more)

    def read_endpoints(self) -> Endpoints | None:
        """Return the published endpoints, or None if there are none."""
        try:
            content = json.loads(read_checked(self.endpoints, error=DependencyUnavailableError).data)
        except FileNotFoundError:
            return None
        return Endpoints(**{field.name: content[field.name] for field in fields(Endpoints)})

    def write_failure(self, message: str, hint: str) -> None:
        """Store the error that ended the supervisor. Do nothing if the root folder was deleted."""
        with contextlib.suppress(FileNotFoundError):
            _write_atomically(self.failure, {"message": message, "hint": hint})

    def read_failure(self) -> DependencyUnavailableError | None:
        """Return the error that ended the last supervisor, or None if it ended without one."""
        try:
            content = json.loads(self.failure.read_text())
        except FileNotFoundError:
            return None
        return DependencyUnavailableError(content["message"], hint=content["hint"])


def _write_atomically(path: Path, content: Mapping[str, str | int]) -> None:
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(content, indent=2) + "\n")
    unfinished.replace(path)
