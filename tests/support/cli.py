"""The real command in a process of its own, in a folder of its own; nothing secret may ever come out of it.

done = await shell("connections", "list", "--json")
assert done.code == 0 and done.rows[0]["tenant"] == "acme"
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.support.standstill import patience

ANSI = re.compile(r"\x1b|\x9b")
BOXES = re.compile("[─━│┃╭╮╰╯┏┓┗┛]")
MASTER_KEY = "k1:" + "0123456789abcdef" * 4
PATIENCE_S = 180.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """One command that has ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """Standard output as NDJSON; every line must be an object."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> Any:
        """Standard output as one JSON object."""
        (row,) = self.rows
        return row

    @property
    def error(self) -> Any:
        """The error object that --json puts on standard error, whatever words stand around it."""
        lines = [line for line in self.err.splitlines() if line.startswith('{"error"')]
        return json.loads(lines[-1])["error"]


class Child:
    """A command that runs. Its streams block: read them with asyncio.to_thread."""

    def __init__(self, answers: socket.socket, stdin: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self._answers = answers.makefile("r")
        answers.close()
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.pid = int(self._answers.readline())

    async def line(self) -> str:
        """Return the next line of its standard output."""
        return await asyncio.to_thread(self.stdout.readline)

    async def word(self) -> str:
        """Return the next line of its standard error."""
        return await asyncio.to_thread(self.stderr.readline)

    def kill(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    async def end(self, stdin: str = "") -> Done:
        """Hand in *stdin*, and wait for the end."""
        with suppress(BrokenPipeError):  # it may have ended without reading
            self.stdin.write(stdin)
            self.stdin.close()
        try:
            async with patience(PATIENCE_S):
                out, err, code = await asyncio.gather(
                    asyncio.to_thread(self.stdout.read),
                    asyncio.to_thread(self.stderr.read),
                    asyncio.to_thread(self._answers.readline),
                )
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            for stream in (self.stdout, self.stderr, self._answers):
                stream.close()
        return Done(int(code), out, err)


class Spawner:
    """Starts commands by forking a process that has loaded everything already."""

    def __init__(self, folder: Path) -> None:
        self._place = folder

    def start(self, arguments: tuple[str, ...], folder: Path, environ: Mapping[str, str]) -> Child:
        """Start one command."""
        request = socket.socket(socket.AF_UNIX)
        request.connect(str(self._place))
        (read_in, stdin), (stdout, write_out), (stderr, write_err) = os.pipe(), os.pipe(), os.pipe()
        order = {"arguments": arguments, "folder": str(folder), "environ": dict(environ)}
        socket.send_fds(request, [json.dumps(order).encode()], [read_in, write_out, write_err])
        for descriptor in (read_in, write_out, write_err):
            os.close(descriptor)
        return Child(request, os.fdopen(stdin, "w"), os.fdopen(stdout), os.fdopen(stderr))


@contextmanager
def running_spawner() -> Iterator[Spawner]:
    """Run a spawner during the block."""
    with tempfile.TemporaryDirectory(prefix="fl-cli-") as folder:
        socket_path = Path(folder) / "spawner"
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.spawner", str(socket_path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONUTF8": "1", "PYTHONWARNINGS": "error"},
        )
        try:
            while not socket_path.exists():
                assert process.poll() is None
            yield Spawner(socket_path)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(10) == 0


@dataclass
class Shell:
    """Runs `fairlead` in *folder*. *canaries* are secrets: no output of any command may hold one."""

    folder: Path
    spawner: Spawner
    environ: dict[str, str] = field(default_factory=dict)
    canaries: set[str] = field(default_factory=set)

    def settings(self, text: str) -> None:
        """Write the settings file."""
        (self.folder / "fairlead.toml").write_text(text, encoding="utf-8")

    def secret(self, name: str) -> str:
        """Return a new canary."""
        canary = f"canary-{name}-{len(self.canaries)}-{os.urandom(6).hex()}"
        self.canaries.add(canary)
        return canary

    async def __call__(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        """Run one command to its end and check its manners."""
        return await self.end(self.start(*arguments, env=env), stdin)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> Child:
        """Start a command and leave it running; *arguments* hold no secret."""
        assert not any(canary in argument for canary in self.canaries for argument in arguments)
        environ = self.all_environ | dict(env or {})  # an empty one stands for one that is not set
        return self.spawner.start(
            arguments, self.folder, {name: text for name, text in environ.items() if text}
        )

    async def end(self, child: Child, stdin: str = "") -> Done:
        """Wait for its end and check its manners: no secret, nothing that only a terminal understands."""
        done = await child.end(stdin)
        printed = done.out + done.err
        assert not [canary for canary in self.canaries if canary in printed]
        assert not ANSI.search(printed)
        assert not BOXES.search(printed)
        assert "Traceback" not in done.err, done.err  # output may hold one: that of a job
        return done

    @property
    def all_environ(self) -> dict[str, str]:
        """Nothing of the environment of the tests but what any program needs."""
        environment = {
            name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ
        }
        return {**environment, **self.environ}
