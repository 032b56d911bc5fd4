"""The embedded Valkey: append-only file, no eviction, a Unix socket, no TCP (DEFAULTS 7)."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead.adapters.embedded.server_process import ManagedServer
from fairlead.adapters.embedded.server_settings import checked_settings
from fairlead.adapters.embedded.wheels import Wheel, valkey_wheel
from fairlead.adapters.embedded.wire import valkey_answers

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
    """Valkey of one root folder. *settings* (names begin with ``valkey.``) win over the defaults."""

    name = "valkey"
    stop_signals = ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0))

    def __init__(self, root: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """Raises DependencyUnavailableError without the wheel, InvalidInputError for an impossible setting."""
        super().__init__(root, valkey_wheel())
        self._settings = SETTINGS | checked_settings(settings)[1]
        self._data = self.home.folder(self.name)

    @property
    def url(self) -> str:
        """For redis-py and its like."""
        return f"unix://{self._socket}"

    def version(self) -> str:
        """Like '9.1.2'."""
        return self._wheel.version(PROGRAM)

    def answers(self) -> bool:
        """Whether Valkey answers a ping, so its file is loaded."""
        return valkey_answers(self.url)

    @property
    def _socket(self) -> Path:
        return self.home.sockets() / "valkey.sock"

    @property
    def _pid_file(self) -> Path:
        return self._data / "valkey.pid"

    def _prepare(self, wheel: Wheel, guard: int) -> Sequence[str | Path]:
        places = {"unixsocket": str(self._socket), "dir": str(self._data), "pidfile": str(self._pid_file)}
        options = [part for name, value in (self._settings | places).items() for part in (f"--{name}", value)]
        return [wheel.program(PROGRAM), *options]
