"""Lua lives in files: one script, one file, one header; parts that scripts share are included.

A line ``--- @include bucket`` is replaced by ``lua/include/bucket.lua``, once per script however often it is
asked for. The header is part of the contract: its first line names the file, and Takes, Gives, Writes and
Needs tell what a caller must know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib import resources

_HEADER_WORDS = ("Takes", "Gives", "Writes", "Needs")
_INCLUDE = re.compile(r"^--- @include ([a-z_]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the server gets it, and the name under which it keeps it."""

    name: str
    text: str
    sha: str


def assemble(name: str, source: str, included: Callable[[str], str]) -> Script:
    """The script of one file, or ValueError if it breaks the rules above. *included* reads a part."""
    _check_header(name, source)
    seen: set[str] = set()

    def put_in(found: re.Match[str]) -> str:
        part = found[1]
        if part in seen:
            return ""
        seen.add(part)
        text = included(part)
        if not text.startswith(f"-- {part}: "):
            raise ValueError(f"{part}: the first line must be `-- {part}: what it does`")
        return _INCLUDE.sub(put_in, text)

    text = _INCLUDE.sub(put_in, source)
    # SHA-1 is how Redis names scripts; nothing here rests on its strength.
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
    """The script of ``lua/<name>.lua``, read and assembled once per process."""
    folder = resources.files("fairlead.adapters.redis").joinpath("lua")

    def included(part: str) -> str:
        return folder.joinpath("include", f"{part}.lua").read_text(encoding="utf-8")

    return assemble(name, folder.joinpath(f"{name}.lua").read_text(encoding="utf-8"), included)


def read_scripts() -> None:
    """Read every script, so that none is read where no descriptor is left."""
    for name in script_names():
        script(name)


def script_names() -> list[str]:
    """Every script there is, in the order of their names."""
    folder = resources.files("fairlead.adapters.redis").joinpath("lua")
    return sorted(file.name.removesuffix(".lua") for file in folder.iterdir() if file.name.endswith(".lua"))
