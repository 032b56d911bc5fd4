"""The base of the test servers: life on a local port, request barriers, and the command line.

The issuer and the vendor APIs add what they answer; both run inside a test by ``async with``, or as a process.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Self

from aiohttp import web

from fairlead.errors import FairleadError
from fairlead.testing._kit.process import run
from fairlead.testing._kit.request_barrier import Barriers, Hook


class LocalServer(ABC):
    """An aiohttp server on a local port; `url` is its address once it has started.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        hooks: Awaited at each named point of each request.
    """

    def __init__(self, host: str, port: int, hooks: Iterable[Hook] = ()) -> None:
        self.url = ""
        self._host, self._port = host, port
        self._barriers = Barriers(hooks)
        self._stopping = asyncio.Event()
        self._runner: web.BaseRunner | None = None

    @abstractmethod
    def _make_runner(self) -> web.BaseRunner:
        """Return the aiohttp runner that handles the requests."""

    async def start(self) -> None:
        """Listen; raise OSError when the port is taken."""
        self._runner = self._make_runner()
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, backlog=1024).start()
        except BaseException:
            await self.stop()
            raise
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """End every wait and barrier, and close all connections. A second call does nothing."""
        self._stopping.set()
        self._barriers.release_all()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


# ---- command line --------------------------------------------------------------------------------


def server_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every test server has."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 0: a free one)")
    parser.add_argument("--die-with-parent", action="store_true", help="end when standard input closes")
    return parser


def run_server(label: str, serve: Callable[[], Coroutine[None, None, int]], *, port_hint: str) -> int:
    """Run *serve*; return its exit code, 2 for unusable arguments, or 1 when it cannot listen."""
    try:
        return run(serve())
    except FairleadError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"{label}: cannot start: {error} hint: choose another {port_hint}\n")
        return 1
