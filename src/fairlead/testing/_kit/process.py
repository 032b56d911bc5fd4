"""A server for tests as a process of its own: its ready line, and how it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping

from fairlead.errors import InvalidConfigError


def run(main: Coroutine[None, None, int]) -> int:
    """Run *main* on the fastest loop there is."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.run(main)
    return asyncio.run(main)


async def until_told(
    start: Callable[[], Awaitable[object]],
    stop: Callable[[], Awaitable[object]],
    ready: Callable[[], Mapping[str, object]],
    *,
    die_with_parent: bool,
) -> int:
    """Start, print one JSON line (*ready* and ``pid``), and stop on SIGTERM or SIGINT; gives 0.

    *die_with_parent*: also when standard input closes, as it does when the process that holds the other end
    of the pipe dies. Raises InvalidConfigError where that is no pipe, and whatever *start* raises.
    """
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    if die_with_parent:
        await _watch_stdin(told)
    await start()
    try:
        sys.stdout.write(json.dumps({**ready(), "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        await told.wait()
    finally:
        await stop()
    return 0


class _EndOfInput(asyncio.Protocol):
    """Sets *stop* when the other end of the pipe is closed."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.set()


async def _watch_stdin(stop: asyncio.Event) -> None:
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):  # uvloop aborts the process on anything else
        raise InvalidConfigError(
            "test server: --die-with-parent needs a pipe as standard input",
            hint="start it with a pipe and keep the other end open",
        )
    await asyncio.get_running_loop().connect_read_pipe(lambda: _EndOfInput(stop), sys.stdin)
