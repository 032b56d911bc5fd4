"""A test server as a child process that ends with its parent, and a client of its control API."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from types import TracebackType
from typing import IO, Any, Self

import aiohttp

from fairlead.errors import DependencyUnavailableError, InvalidInputError

_READY_S = 20.0
_STOP_S = 10.0


class ChildServer:
    """A process ``python -m MODULE ARGUMENTS --die-with-parent`` that prints a JSON line with its ``url`` when ready.

    Args:
        label: The name of the server in error messages.
    """

    def __init__(self, module: str, *arguments: str, label: str) -> None:
        self._module = module
        self._arguments = arguments
        self._label = label
        self._child: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._stderr: IO[bytes] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """The child's process id; InvalidInputError before `start`."""
        if self._child is None:
            raise self._not_running()
        return self._child.pid

    async def start(self) -> None:
        """Start the child and wait until it listens.

        Raises:
            DependencyUnavailableError: The child ended or printed nothing within 20 s; with its stderr.
        """
        pipe = asyncio.subprocess.PIPE
        # Its stderr goes to a file: a pipe that nothing reads would block the child once it is full.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._module, *self._arguments, "--die-with-parent",
            stdin=pipe, stdout=pipe, stderr=self._stderr,
        )  # fmt: skip
        self.url = await self._wait_ready(self._child)
        self._session = aiohttp.ClientSession()

    async def _wait_ready(self, child: asyncio.subprocess.Process) -> str:
        assert child.stdout is not None
        try:
            async with asyncio.timeout(_READY_S):
                line = await child.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            message = f"{self._label} did not start: {self._read_stderr()}"
            await self.stop()
            raise DependencyUnavailableError(message, hint=f"run python -m {self._module} by hand")
        return str(json.loads(line)["url"])

    def _read_stderr(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        return self._stderr.read(2000).decode(errors="replace").strip()

    async def control(self, operation: str, **data: object) -> dict[str, Any]:
        """Send one request to the control API, and raise InvalidInputError with the server's reason if it refuses."""
        if self._session is None:
            raise self._not_running()
        async with self._session.post(f"{self.url}/_control/{operation}", json=data) as response:
            result: dict[str, Any] = await response.json()
        if response.status != 200:
            raise InvalidInputError(str(result["error"]), hint=f"see the control module of {self._module}")
        return result

    def _not_running(self) -> InvalidInputError:
        return InvalidInputError(f"{self._label}: the process is not running", hint="start it first")

    def kill(self) -> None:
        """Send SIGKILL, to test what a crash leaves behind."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()

    async def stop(self) -> None:
        """Send SIGTERM and wait for the end; send SIGKILL after 10 s. A second call does nothing."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._child is not None:
            await self._end(self._child)
        if self._stderr is not None:
            self._stderr.close()

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        if child.returncode is None:
            child.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await child.communicate()
        except TimeoutError:
            child.kill()
            await child.communicate()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
