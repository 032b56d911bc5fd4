"""Writes docs/reference/{cli,exit-codes}.md from the commands: ``python -m tools.cli_reference [--check]``.

A test compares the pages with the code, so neither changes alone.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from fairlead.cli.entry import root
from fairlead.cli.kit.exits import MEANINGS, Exit, exit_code
from fairlead.cli.registry import LazyCommand
from fairlead.errors import FairleadError, all_errors

FOLDER = Path(__file__).resolve().parents[1] / "docs/reference"
_NOTE = "<!-- Written by `python -m tools.cli_reference`. Do not edit. -->"

_HEAD = ("option", "meaning")

_CLI = """\
You can look up every command here. Data goes to stdout, words and errors to stderr.
With `--json` a list is one object per line (NDJSON),
anything else one object, and an error is one object on stderr, `{"error": {"code", "message", "hint", ...}}`,
with the codes of [errors.md](errors.md). Fields are added, never renamed. Lengths of time end in `_s` and are
seconds; moments end in `_at` and are ISO 8601 in UTC. Colour, tables of lines and progress appear on a
terminal only.

Secrets are never words of the command line: you are asked for them, or give them on standard input, in a file or in
the environment. The [exit code](exit-codes.md) says how your command ended.
"""

_EXITS = """\
Your scripts can decide on these exit codes. They follow sysexits(3) where it has a number. If a signal ends a
command, you get 128 plus the signal's number, as from the shell.
"""

# ---- commands ----------------------------------------------------------------------------------


def cli_page() -> str:
    """Return the page of all commands. Options that all commands share are listed once."""
    shared = _shared()
    body = ["", "## Options of every command", "", *_table(_HEAD, map(_option, shared))]
    names = {parameter.name for parameter in shared}
    for path, command in _commands(root(), ("fairlead",)):
        if path != ("fairlead",):
            body += ["", *_section(path, command, names)]
    return _page("Commands", _CLI, body)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner.load() if isinstance(inner, LazyCommand) else inner, (*path, name))


def _shared() -> list[Any]:
    """Return the options that every command has: those of the root, without its own."""
    return [parameter for parameter in root().params if parameter.name != "version"]


def _section(path: tuple[str, ...], command: Any, shared: set[str]) -> list[str]:
    title = f"{'#' * min(len(path), 3)} {' '.join(path)}"
    lines = [title, "", *inspect.cleandoc(command.help or "").splitlines()]
    if getattr(command, "commands", None) and not command.invoke_without_command:
        return lines
    own_parameters = [parameter for parameter in command.params if parameter.name not in shared]
    arguments = [parameter for parameter in own_parameters if parameter.param_type_name == "argument"]
    words = " ".join([*path, *(_metavar(argument) for argument in arguments), "[OPTIONS]"])
    lines += ["", "```", words, "```"]
    if own_parameters:
        rows = [
            _argument(parameter) if parameter in arguments else _option(parameter)
            for parameter in own_parameters
        ]
        lines += ["", *_table(_HEAD, rows)]
    return lines


def _argument(parameter: Any) -> tuple[str, str]:
    return f"`{_metavar(parameter)}`", _meaning(parameter)


def _metavar(argument: Any) -> str:
    shown = argument.metavar or argument.name.upper()
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


def _option(parameter: Any) -> tuple[str, str]:
    """Return names and meaning of an option as in the help of its command."""
    names, meaning = parameter.get_help_record(typer.Context(root()))
    return f"`{names}`", _meaning(parameter, meaning)


def _meaning(parameter: Any, recorded: str | None = None) -> str:
    text = (parameter.help or "" if recorded is None else recorded).strip()
    return text.replace("|", "\\|").replace("  [", " [")


# ---- exit codes --------------------------------------------------------------------------------


def exits_page() -> str:
    """Return the page of exit codes, with the errors that lead to each."""
    rows = [(str(int(code)), MEANINGS[code], _errors_of(code)) for code in Exit]
    return _page("Exit codes", _EXITS, ["", *_table(("code", "meaning", "errors"), rows)])


def _errors_of(code: Exit) -> str:
    ours: list[type[FairleadError]] = [kind for kind in all_errors() if kind.__module__ == "fairlead.errors"]
    return ", ".join(f"`{kind.code}`" for kind in ours if exit_code(kind("what")) == code) or "–"


# ---- pages -------------------------------------------------------------------------------------


def _page(title: str, words: str, body: Sequence[str]) -> str:
    return "\n".join([f"# {title}", "", _NOTE, "", words.rstrip(), *body]) + "\n"


def _table(head: Sequence[str], rows: Any) -> list[str]:
    line = " | ".join
    return [f"| {line(head)} |", f"|{' --- |' * len(head)}", *(f"| {line(row)} |" for row in rows)]


PAGES = {"cli.md": cli_page, "exit-codes.md": exits_page}


def outdated() -> list[str]:
    """Return the pages that differ from the code."""
    return [
        name
        for name, page in PAGES.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != page()
    ]


def main() -> int:
    """Write the pages, or with --check print the outdated ones."""
    if "--check" in sys.argv[1:]:
        stale = outdated()
        sys.stdout.write("".join(f"{name} is outdated\n" for name in stale))
        return 1 if stale else os.EX_OK
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
    return os.EX_OK


if __name__ == "__main__":
    raise SystemExit(main())
