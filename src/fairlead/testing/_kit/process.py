"""A test server as a process of its own: the line that says it is ready, and the signals that end it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Protocol

from fairlead.errors import InvalidConfigError


class Startable(Protocol):
    """A server that can be started and stopped."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def run(main: Coroutine[None, None, int]) -> int:
    """Run *main* on uvloop if it is installed, else on asyncio's own loop."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.run(main)
    return asyncio.run(main)


async def serve_until_signal(
    server: Startable, ready: Callable[[], Mapping[str, object]], *, die_with_parent: bool
) -> int:
    """Start *server*, print one JSON line (*ready* and ``pid``), stop on SIGTERM or SIGINT, and return 0.

    Args:
        die_with_parent: Stop also when standard input closes, as it does when the process at the other end
            of the pipe dies.

    Raises:
        InvalidConfigError: *die_with_parent* is set and standard input is no pipe.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if die_with_parent:
        await _watch_stdin(stop)
    await server.start()
    try:
        sys.stdout.write(json.dumps({**ready(), "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await server.stop()
    return 0


class _EndOfInput(asyncio.Protocol):
    """A protocol that sets *stop* when the other end of the pipe is closed."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.set()


async def _watch_stdin(stop: asyncio.Event) -> None:
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):  # uvloop aborts the process on anything else
        raise InvalidConfigError(
            "test server: --die-with-parent needs a pipe as standard input",
            hint="start it with a pipe and keep the other end open",
        )
    await asyncio.get_running_loop().connect_read_pipe(lambda: _EndOfInput(stop), sys.stdin)
