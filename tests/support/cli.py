"""The real command in a process of its own, in a folder of its own; nothing secret may ever come out of it.

    done = await shell("connections", "list", "--json")
    assert done.code == 0 and done.rows[0]["tenant"] == "acme"
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ANSI = re.compile(r"\x1b|\x9b")
BOXES = re.compile("[─━│┃╭╮╰╯┏┓┗┛]")
MASTER_KEY = "k1:" + "0123456789abcdef" * 4


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


@dataclass
class Shell:
    """Runs `fairlead` in *folder*. *canaries* are secrets: no output of any command may hold one."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    canaries: set[str] = field(default_factory=set)

    def settings(self, text: str) -> None:
        """Write the settings file."""
        (self.folder / "fairlead.toml").write_text(text, encoding="utf-8")

    def secret(self, name: str) -> str:
        """A new canary."""
        canary = f"canary-{name}-{len(self.canaries)}-{os.urandom(6).hex()}"
        self.canaries.add(canary)
        return canary

    async def __call__(
        self, *arguments: str, stdin: str | None = "", env: Mapping[str, str] | None = None
    ) -> Done:
        """Run one command to its end and check its manners."""
        child = await self.start(*arguments, env=env)
        done = await self.end(child, stdin)
        assert "Traceback" not in done.err, done.err
        return done

    async def start(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        """Start a command and leave it running; *arguments* hold no secret."""
        assert not any(canary in argument for canary in self.canaries for argument in arguments)
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlead", *arguments),
            cwd=self.folder,
            env=self.all_environ | dict(env or {}),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )

    async def end(self, child: asyncio.subprocess.Process, stdin: str | None = "") -> Done:
        """Wait for its end; what it said since it was last read."""
        try:
            async with asyncio.timeout(60):
                out, err = await child.communicate(None if stdin is None else stdin.encode())
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        return self.checked(Done(child.returncode or 0, out.decode(), err.decode()))

    def checked(self, done: Done) -> Done:
        """No secret, and nothing that only a terminal understands."""
        told = done.out + done.err
        assert not [canary for canary in self.canaries if canary in told]
        assert not ANSI.search(told)
        assert not BOXES.search(told)
        return done

    @property
    def all_environ(self) -> dict[str, str]:
        """Nothing of the environment of the tests but what Python needs."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
        return {**kept, "PYTHONUTF8": "1", "PYTHONWARNINGS": "error", **self.environ}
