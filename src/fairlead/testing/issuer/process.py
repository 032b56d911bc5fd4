"""The issuer as a child process, and a small client of its control API, for tests over processes.

    async with IssuerProcess(config, ledger=path) as issuer:
        await issuer.control("rule", quirk="cut_after", times=1)
        ...
    verdict = judge(read_ledger(path))

The operations stand in ``fairlead.testing.issuer.control``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import aiohttp

from fairlead.errors import DependencyUnavailable, InputInvalid
from fairlead.testing.issuer.config import IssuerConfig
from fairlead.testing.ledger import Ledger, read_ledger

_READY_S = 20.0
_STOP_S = 10.0


class IssuerProcess:
    """One child that dies with us. *config* is handed over as a file; *ledger* is required, because it
    is what is left when the child is killed."""

    def __init__(self, config: IssuerConfig, *, ledger: Path, sync: bool = False) -> None:
        self._config = config.model_copy(update={"ledger": ledger, "sync": sync or config.sync})
        self._child: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._file: Path | None = None
        self._words: IO[bytes] | None = None
        self.ledger_path = ledger
        self.url = ""

    @property
    def pid(self) -> int:
        """The child's process id; raises InputInvalid before `start`."""
        if self._child is None:
            raise InputInvalid("test issuer: the process is not running", hint="start it first")
        return self._child.pid

    async def start(self) -> None:
        """Start the child and wait until it listens; raises DependencyUnavailable with its words."""
        with tempfile.NamedTemporaryFile(
            "w", prefix="fairlead-issuer-", suffix=".json", delete=False
        ) as file:
            file.write(self._config.model_dump_json())
        self._file = Path(file.name)
        arguments = ("-m", "fairlead.testing.issuer", "--config", file.name, "--die-with-parent")
        pipe = asyncio.subprocess.PIPE
        # Its stderr goes to a file that outlives this call: a pipe nobody reads would block the child.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=pipe, stdout=pipe, stderr=self._words
        )
        self.url = await self._ready(self._child)
        self._file.unlink(missing_ok=True)  # it has been read; we may be killed before the stop
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
            raise DependencyUnavailable(
                f"test issuer did not start: {words}",
                hint="run python -m fairlead.testing.issuer by hand",
            )
        return str(json.loads(line)["url"])

    def _last_words(self) -> str:
        if self._words is None:
            return ""
        self._words.seek(0)
        return self._words.read(2000).decode(errors="replace").strip()

    async def control(self, operation: str, **data: object) -> dict[str, Any]:
        """One request to the control API; raises InputInvalid with the issuer's reason."""
        if self._session is None:
            raise InputInvalid("test issuer: the process is not running", hint="start it first")
        async with self._session.post(f"{self.url}/_control/{operation}", json=data) as response:
            answer: dict[str, Any] = await response.json()
        if response.status != 200:
            raise InputInvalid(str(answer["error"]), hint="see fairlead.testing.issuer.control")
        return answer

    def ledger(self) -> Ledger:
        """What stands in the ledger file now; `control("flush")` first while the child lives."""
        return read_ledger(self.ledger_path)

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
        if self._file is not None:
            self._file.unlink(missing_ok=True)
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
