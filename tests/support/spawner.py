"""Starts many `fairlead` processes without paying the interpreter's start and the imports each time.

One process loads everything once and then forks for each command: a real process with its own pid, pipes,
folder, environment, signals and exit code, which then calls what the installed command calls. Run as
``python -m tests.support.spawner SOCKET``; it ends when its standard input closes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

LOADED = (
    "fairlead.app",
    "fairlead.assembly.doctor.checkup",
    "fairlead.cli.connections",
    "fairlead.cli.dlq",
    "fairlead.cli.entry",
    "fairlead.cli.jobs",
    "fairlead.cli.providers",
    "fairlead.cli.status",
    "fairlead.cli.vault",
    "fairlead.assembly.logs",
)
MAX_REQUEST_BYTES = 1 << 20


def serve(socket_path: str) -> None:
    """Serve until the other end of standard input is closed."""
    for module in LOADED:
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are nobody's children
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(socket_path)
        listener.listen(64)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            request, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _keep(request)
            request.close()


def _keep(request: socket.socket) -> None:
    """Start the command, report its pid, wait for its end, and report its exit."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    payload, descriptors, _, _ = socket.recv_fds(request, MAX_REQUEST_BYTES, 3)
    pid = os.fork()
    if pid == 0:
        request.close()
        _become(json.loads(payload), descriptors)
        return
    for descriptor in descriptors:
        os.close(descriptor)
    with suppress(OSError):
        request.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        request.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(payload: dict[str, object], descriptors: list[int]) -> None:
    """Replace this process by the command, and end as it ends."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(str(payload["folder"]))
    os.environ.clear()
    os.environ.update(payload["environ"])  # type: ignore[arg-type]
    from fairlead.cli import main

    sys.exit(main(payload["arguments"]))  # type: ignore[arg-type]


if __name__ == "__main__":
    Path(sys.argv[1]).parent.mkdir(exist_ok=True)
    serve(sys.argv[1])
