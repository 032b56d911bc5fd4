"""A server for tests as a child process that dies with us, and a small client of its control API."""

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
    """``python -m MODULE ARGUMENTS --die-with-parent``, which prints a JSON line with its ``url`` when ready.

    *what*: what errors call it.
    """

    def __init__(self, module: str, *arguments: str, what: str) -> None:
        self._module = module
        self._arguments = arguments
        self._what = what
        self._child: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._words: IO[bytes] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """The child's process id; raises InvalidInputError before `start`."""
        if self._child is None:
            raise self._not_running()
        return self._child.pid

    async def start(self) -> None:
        """Start the child and wait until it listens; raises DependencyUnavailableError with its words."""
        pipe = asyncio.subprocess.PIPE
        # Its stderr goes to a file that outlives this call: a pipe nobody reads would block the child.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._module, *self._arguments, "--die-with-parent",
            stdin=pipe, stdout=pipe, stderr=self._words,
        )  # fmt: skip
        self.url = await self._ready(self._child)
        self._session = aiohttp.ClientSession()

    async def _ready(self, child: asyncio.subprocess.Process) -> str:
        assert child.stdout is not None
        try:
            async with asyncio.timeout(_READY_S):
                line = await child.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            words = self._last_words()
            await self.stop()
            hint = f"run python -m {self._module} by hand"
            raise DependencyUnavailableError(f"{self._what} did not start: {words}", hint=hint)
        return str(json.loads(line)["url"])

    def _last_words(self) -> str:
        if self._words is None:
            return ""
        self._words.seek(0)
        return self._words.read(2000).decode(errors="replace").strip()

    async def control(self, operation: str, **data: object) -> dict[str, Any]:
        """One request to the control API; raises InvalidInputError with the server's reason."""
        if self._session is None:
            raise self._not_running()
        async with self._session.post(f"{self.url}/_control/{operation}", json=data) as response:
            answer: dict[str, Any] = await response.json()
        if response.status != 200:
            raise InvalidInputError(str(answer["error"]), hint=f"see {self._module}.control")
        return answer

    def _not_running(self) -> InvalidInputError:
        return InvalidInputError(f"{self._what}: the process is not running", hint="start it first")

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()

    async def stop(self) -> None:
        """SIGTERM and wait for the clean end; SIGKILL after 10 s. Twice is no error."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        if self._child is not None:
            await self._end(self._child)
        if self._words is not None:
            self._words.close()

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
