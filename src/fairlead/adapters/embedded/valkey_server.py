"""The embedded Valkey: append-only file, no eviction, a Unix socket, no TCP. Spec: DEFAULTS 7."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead.adapters.embedded.readiness import valkey_answers
from fairlead.adapters.embedded.server_process import ManagedServer
from fairlead.adapters.embedded.server_settings import checked_settings
from fairlead.adapters.embedded.wheels import Wheel, valkey_wheel

__all__ = ["EmbeddedValkey"]

PROGRAM = "valkey-server"
SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-use-rdb-preamble": "yes",
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "64mb",
    "save": "",
    "maxmemory": "512mb",
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
}


class EmbeddedValkey(ManagedServer):
    """The Valkey server of one root folder."""

    name = "valkey"
    stop_signals = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0))

    def __init__(self, root: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """Create the server's folder; `start` starts it.

        Args:
            settings: Valkey settings that override `SETTINGS`, with names that begin with ``valkey.``. They
                apply only if this instance starts the server, not if it adopts a running one.

        Raises:
            DependencyUnavailableError: The wheel is not installed, or the folder cannot be used.
            InvalidInputError: *settings* hold what cannot be a setting.
        """
        super().__init__(root, valkey_wheel())
        self._settings = SETTINGS | checked_settings(settings)[1]
        self._data = self.home.folder(self.name)

    @property
    def url(self) -> str:
        """The URL, as redis-py and similar clients take it."""
        return f"unix://{self._socket}"

    def version(self) -> str:
        """Return the version of the program, such as '9.1.2'."""
        return self._wheel.version(PROGRAM)

    def answers(self) -> bool:
        """Return whether Valkey answers a ping. It does so once its append-only file is loaded."""
        return valkey_answers(self.url)

    @property
    def _socket(self) -> Path:
        return self.home.sockets() / "valkey.sock"

    @property
    def _pid_file(self) -> Path:
        return self._data / "valkey.pid"

    def _prepare(self, wheel: Wheel, guard: int) -> Sequence[str | Path]:
        paths = {"unixsocket": str(self._socket), "dir": str(self._data), "pidfile": str(self._pid_file)}
        options = [part for name, value in (self._settings | paths).items() for part in (f"--{name}", value)]
        return [wheel.program(PROGRAM), *options]
