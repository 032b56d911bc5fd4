"""One process of fairlead as a test holds it: it can be asked, frozen, thawed and killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.support.nursery import Nursery
from tests.support.standstill import patience

LOOK_S = 0.001
PATIENCE_S = 180.0


class Gone(Exception):
    """The process ended before it answered."""


class Asked(Exception):
    """The process answered with an error; *error* is the name of its class."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['error']}: {answer['said']}")
        self.error: str = answer["error"]
        self.retry_after_s: float | None = answer.get("retry_after_s")


class Child:
    """Nothing runs before `begin`, and it is ready when that returns."""

    def __init__(self, nursery: Nursery, order: dict[str, Any]) -> None:
        self._nursery = nursery
        self._order = order
        self._log = Path(order["log"])
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ended = asyncio.Event()
        self.pid = 0
        self.session_id = ""
        self.code: int | None = None  # once it has ended; negative: the signal that ended it

    async def begin(self) -> None:
        """Be born, and have an open runtime."""
        self.pid, ours = self._nursery.fork(self._order)
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 22)
        self._listening = asyncio.create_task(self._listen(reader))
        self.session_id = (await self._answer_to(0))["session_id"]

    async def ask(self, command: str, **how: Any) -> dict[str, Any]:
        """The answer to one order; Asked where it was an error, Gone where it never came."""
        number = next(self._numbers)
        answer = asyncio.ensure_future(self._answer_to(number))
        await asyncio.sleep(0)
        with suppress(ConnectionError):
            self._writer.write(json.dumps({"number": number, "what": command, "how": how}).encode() + b"\n")
            await self._writer.drain()
        return await answer

    async def _answer_to(self, number: int) -> dict[str, Any]:
        if self._ended.is_set():
            raise Gone(self.words())
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            async with patience(PATIENCE_S):
                answer = await future
        except TimeoutError:
            raise AssertionError(
                f"process {self.pid} ({_state(self.pid)}) does not answer\n{self.words()}"
            ) from None
        if "error" in answer:
            raise Asked(answer)
        return answer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._asked.pop(answer["number"], None)
                if future is not None and not future.done():
                    future.set_result(answer)
        self._ended.set()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Gone(self.words()))

    # ---- signals

    async def freeze(self) -> None:
        """SIGSTOP; it does not move any more when this returns."""
        os.kill(self.pid, signal.SIGSTOP)
        await self.frozen()

    async def frozen(self, unless: asyncio.Future[Any] | None = None) -> bool:
        """True once it is stopped (a fault point may stop it too), False if *unless* is done before."""
        async with patience(PATIENCE_S):
            while _state(self.pid) != "T":
                if self._ended.is_set():
                    raise Gone(self.words())
                if unless is not None and unless.done():
                    return False
                await asyncio.sleep(LOOK_S)
        return True

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM: a child of support/command.py drains."""
        os.kill(self.pid, signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL, and wait until the kernel has buried it."""
        if not self.pid:
            return
        if not self._ended.is_set():
            with suppress(ProcessLookupError):  # it was faster
                os.kill(self.pid, signal.SIGKILL)
        await self.died()

    async def died(self) -> None:
        """Return once it is dead, by whatever cause."""
        async with patience(PATIENCE_S):
            await self._ended.wait()
        self.code = self._nursery.reaped(self.pid)
        await self._let_go()

    async def stop(self) -> None:
        """Drain and close, as on SIGTERM."""
        if self._ended.is_set():
            return
        with suppress(Gone):
            await self.ask("stop")
        await self.died()

    async def _let_go(self) -> None:
        await self._listening
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        for future in self._asked.values():
            if future.done() and not future.cancelled():
                future.exception()

    @property
    def alive(self) -> bool:
        return not self._ended.is_set()

    def words(self) -> str:
        """The end of what it wrote."""
        return "\n".join(self.lines())[-2000:]

    def lines(self) -> list[str]:
        """All that it wrote."""
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []


def _state(pid: int) -> str:
    """One letter, as ps has it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()[:1]
