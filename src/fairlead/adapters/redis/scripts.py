"""Loads the Lua scripts from files: one script per file, with a header; shared parts are included.

A line ``--- @include bucket`` is replaced by ``lua/include/bucket.lua``, at most once per script. The header
is part of the contract: its first line names the file, and Takes, Returns, Writes and Needs state what a
caller has to know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib import resources

_HEADER_WORDS = ("Takes", "Returns", "Writes", "Needs")
_INCLUDE = re.compile(r"^--- @include ([a-z_]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as it is sent to the server, and the SHA-1 by which the server stores it."""

    name: str
    text: str
    sha: str


def assemble(name: str, source: str, read_part: Callable[[str], str]) -> Script:
    """Return the script of one file; raise ValueError if it breaks the rules above.

    Args:
        read_part: Returns the text of an included file.
    """
    _check_header(name, source)
    inserted: set[str] = set()

    def insert(match: re.Match[str]) -> str:
        part = match[1]
        if part in inserted:
            return ""
        inserted.add(part)
        text = read_part(part)
        if not text.startswith(f"-- {part}: "):
            raise ValueError(f"{part}: the first line must be `-- {part}: what it does`")
        return _INCLUDE.sub(insert, text)

    text = _INCLUDE.sub(insert, source)
    # Redis identifies scripts by SHA-1; nothing here depends on its strength.
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _check_header(name: str, source: str) -> None:
    header = "\n".join(_header(source))
    if not re.match(rf"-- {re.escape(name)}: \S", header):
        raise ValueError(f"{name}: the first line must be `-- {name}: what it does`")
    for word in _HEADER_WORDS:
        if not re.search(rf"^-- {word}[ \t]+\S", header, re.MULTILINE):
            raise ValueError(f"{name}: the header has no line `-- {word}`")


def _header(source: str) -> list[str]:
    lines = source.split("\n")
    end = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return lines[:end]


@cache
def script(name: str) -> Script:
    """Return the script ``lua/<name>.lua``, which is read and assembled once per process."""
    folder = resources.files("fairlead.adapters.redis").joinpath("lua")

    def read_part(part: str) -> str:
        return folder.joinpath("include", f"{part}.lua").read_text(encoding="utf-8")

    return assemble(name, folder.joinpath(f"{name}.lua").read_text(encoding="utf-8"), read_part)


def read_scripts() -> None:
    """Read every script now, so that none is read later when no file descriptor is left."""
    for name in script_names():
        script(name)


def script_names() -> list[str]:
    """Return the names of all scripts in order."""
    folder = resources.files("fairlead.adapters.redis").joinpath("lua")
    return sorted(file.name.removesuffix(".lua") for file in folder.iterdir() if file.name.endswith(".lua"))
