"""The cluster of a benchmark: three Valkeys from the wheel with the settings of the embedded one."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from fairlead.adapters.embedded.valkey_server import SETTINGS
from fairlead.adapters.embedded.wheels import valkey_wheel

PRIMARIES = 3
SLOTS = 16_384
BUS = 10_000
PATIENCE_S = 30.0
LOOK_S = 0.02


@contextmanager
def cluster() -> Iterator[list[str]]:
    """Yield the URL of each primary. The servers and their data exist for the block."""
    with ExitStack() as stack:
        ports = [stack.enter_context(_server(_free_port())) for _ in range(PRIMARIES)]
        clients = [stack.enter_context(Redis(port=port)) for port in ports]
        share = -(-SLOTS // PRIMARIES)
        for number, client in enumerate(clients):
            slots = range(number * share, min(SLOTS, (number + 1) * share))
            client.execute_command("CLUSTER", "ADDSLOTS", *slots)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0])
        _until(lambda: all(_is_whole(client) for client in clients))
        yield [f"redis://127.0.0.1:{port}/0" for port in ports]


@contextmanager
def _server(port: int) -> Iterator[int]:
    with tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as folder:
        settings = {
            **SETTINGS,
            "port": str(port),
            "dir": folder,
            "bind": "127.0.0.1",
            "cluster-enabled": "yes",
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with Path(folder, "log").open("wb") as log:
            program = valkey_wheel().program("valkey-server")
            process = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _until(lambda: _answers(port))
            yield port
        finally:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    with suppress(RedisError), Redis(port=port) as client:
        return bool(client.ping())
    return False


def _is_whole(client: Redis) -> bool:
    info = client.execute_command("CLUSTER", "INFO")
    text = info.decode() if isinstance(info, bytes) else "\n".join(f"{k}:{v}" for k, v in info.items())
    return "cluster_state:ok" in text and f"cluster_known_nodes:{PRIMARIES}" in text


def _until(is_reached: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not is_reached():
        if time.monotonic() > ends_at:
            raise RuntimeError("the cluster of the benchmark does not come up")
        time.sleep(LOOK_S)


def _free_port() -> int:
    """Return a free port for which that of the cluster bus, 10,000 higher, is free too."""
    while True:
        with socket.socket() as port_socket, socket.socket() as bus_socket:
            port_socket.bind(("127.0.0.1", 0))
            port = int(port_socket.getsockname()[1])
            with suppress(OSError, OverflowError):
                bus_socket.bind(("127.0.0.1", port + BUS))
                return port
