"""A reader at their terminals: types what a page shows, and sees whether what comes is what it shows.

A `console` block of a page holds commands behind ``$ `` with what they print. Its words say how it is typed:

    ```console             in the first terminal, each command to its end
    ```console again       the same, again and again until it shows what the page shows
    ```console NAME        in another terminal: its last command goes on, ``^C`` ends it

In what a page shows ``...`` stands for anything, and any spaces for any others: tables are as wide as their
cells. What comes before and after does not matter, but no command may fail.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.pages import Block
from tests.support.standstill import patience

PATIENCE_S = 180.0
"""For one more line, or for a command that is repeated; far beyond what any takes."""
_MARK = "--- done:"


@dataclass(frozen=True, slots=True)
class Typed:
    """One command and what the page shows of it."""

    command: str
    shown: str


def typed(text: str) -> Iterator[Typed]:
    """Return the commands of a block."""
    for part in re.split(r"^(?=\$ |\^C$)", text, flags=re.MULTILINE):
        if not part.strip():
            continue
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = f"{command[:-1]}{more}"
        yield Typed(command.removeprefix("$ "), shown)


def shows(output: str, shown: str) -> bool:
    """Return whether *output* has what a page shows."""
    parts = [re.escape(" ".join(part.split())).replace(r"\ ", r"\s+") for part in shown.split("...")]
    return re.search(r"\s*.*?\s*".join(parts), output, re.DOTALL) is not None


class Terminal:
    """One shell. What its commands print, errors too, comes in one stream."""

    def __init__(self, shell: asyncio.subprocess.Process) -> None:
        assert shell.stdin is not None
        assert shell.stdout is not None
        self._shell, self._stdin, self._stdout = shell, shell.stdin, shell.stdout
        self._lasting: int | None = None

    @classmethod
    async def open(cls, folder: Path, environ: Mapping[str, str]) -> Terminal:
        pipe = asyncio.subprocess.PIPE
        shell = await asyncio.create_subprocess_exec(
            *("bash", "--norc", "--noprofile"),
            cwd=folder,
            env=environ,
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 24,
            start_new_session=True,
        )
        return cls(shell)

    async def run(self, command: str) -> str:
        """Run *command*, which must succeed, and return what it prints."""
        output, code = await self._typed(f"{{ {command}\n}} </dev/null; echo '{_MARK}' $?\n")
        assert code == 0, f"$ {command}\n{output}"
        return output

    async def begin(self, command: str, shown: str) -> None:
        """Start *command*, and return once it has printed what the page shows."""
        assert self._lasting is None
        output, self._lasting = await self._typed(f"{command} </dev/null &\necho '{_MARK}' $!\n")
        while not shows(output, shown):
            output += await self._line(f"$ {command}\n{output}")

    async def interrupt(self, shown: str) -> None:
        """Send Ctrl-C to the running command, which must end successfully."""
        assert self._lasting is not None
        pid, self._lasting = self._lasting, None
        os.kill(pid, signal.SIGINT)
        output, code = await self._typed(f"wait {pid}; echo '{_MARK}' $?\n")
        assert code == 0, output
        assert shows(output, shown), output

    async def close(self) -> None:
        """End all running commands."""
        if self._lasting is not None:
            os.kill(self._lasting, signal.SIGTERM)
            self._stdin.write(f"wait {self._lasting}\n".encode())
        self._stdin.close()
        try:
            async with patience(PATIENCE_S):
                await self._shell.wait()
        except TimeoutError:  # it hangs, which was reported already
            os.killpg(self._shell.pid, signal.SIGKILL)
            await self._shell.wait()

    async def _typed(self, text: str) -> tuple[str, int]:
        self._stdin.write(text.encode())
        output = mark = code = ""
        while not mark:
            before, mark, code = (await self._line(f"{text}{output}")).partition(_MARK)
            output += before
        return output, int(code)

    async def _line(self, prompt: str) -> str:
        """Return the next line. Raise AssertionError with the earlier output if there is none in time."""
        try:
            async with patience(PATIENCE_S):
                line = await self._stdout.readline()
        except TimeoutError:
            line = b""
        assert line, prompt
        return line.decode()


@dataclass
class Reader:
    """Follows a page in *folder*, block by block. *instead*: texts in the place of those of the page."""

    folder: Path
    environ: Mapping[str, str]
    instead: Mapping[str, str] = field(default_factory=dict)
    _terminals: dict[str, Terminal] = field(default_factory=dict)

    async def follow(self, block: Block) -> None:
        """Do what one block says; AssertionError where it does not show what the page shows."""
        text = block.text
        for theirs, ours in self.instead.items():
            text = text.replace(theirs, ours)
        block = replace(block, text=text)
        if block.language == "console":
            await self._type(block)
        else:
            block.write_to(self.folder)

    async def close(self) -> None:
        """Close all terminals, the last one first."""
        for terminal in reversed(self._terminals.values()):
            await terminal.close()
        self._terminals.clear()

    async def _type(self, block: Block) -> None:
        again = "again" in block.words
        names = [word for word in block.words if word != "again"]
        terminal = await self._terminal(names[0] if names else "")
        commands = list(typed(block.take()))
        for at, command in enumerate(commands, 1):
            if command.command == "^C":
                await terminal.interrupt(command.shown)
            elif names and at == len(commands):
                await terminal.begin(command.command, command.shown)
            elif again:
                await _until(terminal, command)
            else:
                output = await terminal.run(command.command)
                assert shows(output, command.shown), f"{block.place}\n$ {command.command}\n{output}"

    async def _terminal(self, name: str) -> Terminal:
        if name not in self._terminals:
            self._terminals[name] = await Terminal.open(self.folder, self.environ)
        return self._terminals[name]


async def _until(terminal: Terminal, command: Typed) -> None:
    output = await terminal.run(command.command)
    try:
        async with patience(PATIENCE_S):
            while not shows(output, command.shown):
                output = await terminal.run(command.command)
    except TimeoutError:
        raise AssertionError(f"$ {command.command}\n{output}") from None
