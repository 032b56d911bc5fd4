"""The files of one root folder, and what is told to its users.

users.lock       shared by every user, exclusive for the supervisor when none is left
supervisor.lock  exclusive for the one supervisor's life
postgres.lock    inherited by the server: free once it and its children are dead (valkey.lock too)
endpoints.json   where the servers answer; there only while they run
failure.json     why the last supervisor could not go on
stop             somebody asks the supervisor to stop now
servers/         data and sockets (home.py), perhaps a link to a place the servers can reach
*.log            supervisor, postgres, valkey
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
    """Where the embedded servers answer, and which versions they are."""

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
        """The lock that *server* inherits."""
        return self.root / f"{server}.lock"

    def log(self, name: str) -> Path:
        """The log of a server or of the supervisor."""
        return self.root / f"{name}.log"

    def make(self) -> None:
        """Make the root folder if it is absent; one that exists keeps its mode."""
        # Made by root it lets the servers' account pass (not list), else every root would need the detour.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        with explain_os_errors(f"cannot use the folder {self.root}"):
            self.root.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.root.mkdir()
            except FileExistsError:
                return
            self.root.chmod(mode)  # whatever the umask

    def open_log(self, name: str) -> int:
        """A descriptor that appends to a log; the caller closes it."""
        return os.open(self.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def trim_log(self, name: str, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        """Move a log that has grown past *limit_bytes* (default 16 MiB) to ``*.log.1``, and go on."""
        path = self.log(name)
        if not path.exists() or path.stat().st_size <= limit_bytes:
            return
        older = path.with_name(path.name + ".1")
        older.write_bytes(path.read_bytes())
        os.truncate(path, 0)  # the writer appends, so it goes on at the new end

    def log_tail(self, *names: str) -> str:
        """The last lines of the named logs, for an error message."""
        parts = []
        for name in names:
            if (path := self.log(name)).exists():
                lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
                parts.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(parts)

    def write_endpoints(self, endpoints: Endpoints, **more: str | int) -> None:
        """Publish where the servers answer, all at once."""
        _write_whole(self.endpoints, asdict(endpoints) | more)

    def read_endpoints(self) -> Endpoints | None:
        """What was published, or None."""
        try:
            found = json.loads(read_checked(self.endpoints, error=DependencyUnavailableError).data)
        except FileNotFoundError:
            return None
        return Endpoints(**{field.name: found[field.name] for field in fields(Endpoints)})

    def write_failure(self, what: str, hint: str) -> None:
        """Leave word why the supervisor ended, unless the folder is gone."""
        with contextlib.suppress(FileNotFoundError):
            _write_whole(self.failure, {"what": what, "hint": hint})

    def read_failure(self) -> DependencyUnavailableError | None:
        """Why the last supervisor ended, or None if it ended well."""
        try:
            found = json.loads(self.failure.read_text())
        except FileNotFoundError:
            return None
        return DependencyUnavailableError(found["what"], hint=found["hint"])


def _write_whole(path: Path, content: Mapping[str, str | int]) -> None:
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(content, indent=2) + "\n")
    unfinished.replace(path)
