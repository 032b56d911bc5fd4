"""How every command behaves: help, streams, colour, pipes, errors, exit codes (ecosystem §8, S14)."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead.cli import main
from fairlead.cli.entry import root
from fairlead.cli.registry import COMMANDS, LazyCommand
from tests.support.cli import ANSI, BOXES, Shell

FAIRLEAD = (sys.executable, "-m", "fairlead")


def all_commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with its path, loaded."""
    command = command or root()
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner.load() if isinstance(inner, LazyCommand) else inner, (*path, name))


PATHS = [path for path, _ in all_commands()]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "-h"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"Usage: {' '.join(('fairlead', *path))}")
    assert not ANSI.search(captured.out)
    assert not BOXES.search(captured.out)
    if len(path) > 1 or not hasattr(dict(all_commands())[path], "commands"):
        for option in ("--json", "--quiet", "--verbose", "--no-color", "--config", "--help"):
            assert option in captured.out


def test_every_command_that_destroys_can_be_tried_and_confirmed() -> None:
    options = {
        path: {name for parameter in command.params for name in parameter.opts}
        for path, command in all_commands()
    }
    for path in PATHS:
        destroying = {"revoke", "remove", "cancel", "redrive", "resolve", "abandon", "prune"}
        if path[-1:] and path[-1] in destroying:
            assert {"--yes", "--dry-run"} <= options[path], path
        changing = {"add", "import", "init", "migrate", "pause", "retry", "resume", "rotate-key"}
        changing |= {"set", "clear", "assign", "unassign"}
        changing |= {"isolate", "disable", "enable", "degrade", "restore", "promote", "reset"}
        if path[-1:] and path[-1] in changing:
            assert "--dry-run" in options[path], path
        secret_words = {"--refresh-token", "--access-token", "--api-key", "--client-secret", "--password"}
        assert not secret_words & options[path], path


def test_the_list_of_commands_is_whole() -> None:
    commands = "init doctor run demo top migrate status connections providers vault jobs schedules dlq config"
    assert set(COMMANDS) == {*commands.split(), "tenants", "gate", "completion"}


def test_the_installed_command_and_the_module_are_the_same() -> None:
    command = Path(sys.executable).with_name("fairlead")
    for start in ((str(command),), FAIRLEAD):
        done = subprocess.run([*start, "--version"], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"fairlead {fairlead.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Usage: fairlead"),
        (("jobs",), 2, "Usage: fairlead jobs"),
        (("nosuch",), 2, "No such command 'nosuch'"),
        (("connectoins",), 2, "Did you mean 'connections'?"),
        (("status", "--nosuch"), 2, "fairlead status --help"),
        (("jobs", "show"), 2, "fairlead jobs show --help"),
        (("jobs", "show", "7"), 2, "hint: an id is a UUID"),
        (("providers", "show", "nosuch"), 1, "hint: see `fairlead providers list`"),
        (("config", "show", "--config", "nowhere.toml"), 78, "hint: `fairlead init` makes one"),
        (("config", "test-response", "nowhere.txt"), 2, "hint: name a file"),
        (("connections", "list"), 69, "hint: "),
    ],
)
async def test_errors_are_words_and_a_code(
    bare: Shell, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = await bare(*arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    if arguments and "Usage" not in words:
        assert done.err.startswith("error: ")
        assert "hint: " in done.err
        as_json = await bare("--json", *arguments)
        assert (as_json.code, as_json.out) == (code, "")
        assert set(as_json.error) >= {"code", "message", "hint"}


async def test_options_of_every_command_stand_before_or_after(bare: Shell) -> None:
    flag_first, flag_last = await bare("--json", "config", "show"), await bare("config", "show", "--json")
    assert flag_first.rows == flag_last.rows
    quiet = await bare("init", "-q", "--dry-run")
    assert quiet.err == ""
    loud = await bare("connections", "list", "--verbose", "--json")
    assert (loud.code, loud.error["code"]) == (69, "dependency_unavailable")


async def test_only_a_terminal_gets_colour_and_tables(bare: Shell) -> None:
    plain = await bare("providers", "list")
    assert plain.out.splitlines()[0].split()[:2] == ["provider", "title"]
    on_terminal = await asyncio.to_thread(_on_terminal, bare, "providers", "list")
    assert BOXES.search(on_terminal)
    assert ANSI.search(await asyncio.to_thread(_on_terminal, bare, "doctor"))
    for arguments, more in ((("doctor", "--no-color"), {}), (("doctor",), {"NO_COLOR": "1"})):
        assert not ANSI.search(await asyncio.to_thread(_on_terminal, bare, *arguments, **more))


def _on_terminal(shell: Shell, *arguments: str, **more: str) -> str:
    """What a person sees."""
    master, terminal = pty.openpty()
    child = subprocess.Popen(
        [*FAIRLEAD, *arguments],
        cwd=shell.folder,
        env={**shell.all_environ, "TERM": "xterm", "COLUMNS": "200", **more},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    received = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        received += part
    os.close(master)
    child.wait(30)
    return received.decode()


async def test_a_person_is_asked_before_something_is_destroyed(shell: Shell) -> None:
    await shell("connections", "add", "-t", "acme", "-p", "stripe", stdin=shell.secret("key"))
    remove = ("connections", "remove", "-t", "acme", "-p", "stripe")
    declined = await asyncio.to_thread(_answered, shell, "n\n", *remove)
    assert "Delete the connection of 'acme'" in declined
    assert "nothing was changed" in declined
    assert (await shell("connections", "list", "--json")).record["tenant"] == "acme"
    assert "removed" in await asyncio.to_thread(_answered, shell, "y\n", *remove)
    assert (await shell("connections", "list", "--json")).rows == []


def _answered(shell: Shell, answer: str, *arguments: str) -> str:
    """A person at a terminal who says *answer*."""
    master, terminal = pty.openpty()
    child = subprocess.Popen(
        [*FAIRLEAD, *arguments],
        cwd=shell.folder,
        env=shell.all_environ,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(terminal)
    os.write(master, answer.encode())
    out, _ = child.communicate(timeout=60)
    os.close(master)
    return out


def test_a_reader_that_leaves_is_no_error(bare: Shell) -> None:
    command = f"{sys.executable} -m fairlead config show --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=bare.folder,
        env=bare.all_environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["setting"] == "home"


async def test_an_interrupt_ends_with_130(shell: Shell) -> None:
    shell.settings('[providers.hubspot]\nclient_id = "app"\n')
    child = shell.start(
        *("connections", "authorize", "-t", "acme", "-p", "hubspot"),
        *("--redirect-uri", "http://127.0.0.1:0/callback"),
    )
    await child.line()
    child.kill(signal.SIGINT)
    done = await shell.end(child)
    assert done.code == 130


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
async def test_completion_scripts_complete(bare: Shell, name: str) -> None:
    script = await bare("completion", name)
    assert (script.code, "_FAIRLEAD_COMPLETE" in script.out) == (0, True)
    environ = {
        "_FAIRLEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": "fairlead connections re",
        "COMP_CWORD": "2",
    }
    offered = await bare(env=environ)
    assert set(re.findall(r"\w+", offered.out)) == {"refresh", "reauthorize", "revoke", "remove"}
