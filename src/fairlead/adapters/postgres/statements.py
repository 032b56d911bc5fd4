"""SQL lives in files: one statement, one file, one header.

A file reads ``:name`` where PostgreSQL wants ``$n``; the same name is the same number everywhere. The
header is part of the contract and is checked when the file is loaded: its first line names the file,
and Takes, Returns, Locks and Needs state what a caller must know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_HEADER_WORDS = ("Takes", "Returns", "Locks", "Needs")

# What may hold a colon that is no parameter comes first; the last alternative is the parameter.
_TOKEN = re.compile(
    r"""
      --[^\n]*                                          # comment to the end of the line
    | /\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/                  # block comment, not nested
    | (?<!\w)[eE]'(?:[^'\\]|\\.|'')*'                   # string with escapes
    | '(?:[^']|'')*'                                    # string
    | "(?:[^"]|"")*"                                    # quoted identifier
    | (?<![\w$])\$(?P<tag>[A-Za-z_]\w*)?\$.*?\$(?(tag)(?P=tag))\$  # dollar-quoted string
    | ::                                                # cast
    | :=                                                # assignment
    | (?<![\w\])])(?<!:):(?P<name>[a-z_][a-z0-9_]*)     # our parameter; a[1:n] is none
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A compiled statement: *text* has ``$1..$n`` in the order of *params*."""

    name: str
    text: str
    params: tuple[str, ...]

    def args(self, **values: object) -> list[object]:
        """Return *values* in the order of the placeholders; raise TypeError for a missing or unknown name."""
        if len(values) != len(self.params):
            raise TypeError(self._mismatch(values))
        try:
            return [values[name] for name in self.params]
        except KeyError:
            raise TypeError(self._mismatch(values)) from None

    def _mismatch(self, values: dict[str, object]) -> str:
        missing = sorted(set(self.params) - set(values))
        unknown = sorted(set(values) - set(self.params))
        return f"{self.name}: missing {missing}, unknown {unknown}; the file takes {list(self.params)}"


def compile_sql(name: str, source: str) -> Statement:
    """Turn the text of one file into a Statement, or raise ValueError if it breaks the rules above."""
    header, body = _split(source)
    if re.search(r"\$\d", _TOKEN.sub("", body)):
        raise ValueError(f"{name}: write :name, not $n")
    params: list[str] = []

    def number(match: re.Match[str]) -> str:
        param = match["name"]
        if param is None:
            return match[0]
        if param not in params:
            params.append(param)
        return f"${params.index(param) + 1}"

    # The name leads the text, so that it shows in pg_stat_activity and in the server's log.
    text = f"/* {name} */ {_TOKEN.sub(number, body).strip()}"
    _check_header(name, header)
    return Statement(name, text, tuple(params))


def _split(source: str) -> tuple[list[str], str]:
    """Return the leading comment lines and the rest."""
    lines = source.split("\n")
    end = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return lines[:end], "\n".join(lines[end:])


def _check_header(name: str, header: list[str]) -> None:
    if not header or not re.match(rf"-- {re.escape(name)}: \S", header[0]):
        raise ValueError(f"{name}: the first line must be `-- {name}: what it does`")
    text = "\n".join(header)
    for word in _HEADER_WORDS:
        if not re.search(rf"^-- {word}[ \t]+\S", text, re.MULTILINE):
            raise ValueError(f"{name}: the header has no line `-- {word}`")


@cache
def statement(name: str) -> Statement:
    """Return the statement ``sql/<name>.sql``, which is read and compiled once per process."""
    file = resources.files("fairlead.adapters.postgres").joinpath("sql", f"{name}.sql")
    return compile_sql(name, file.read_text(encoding="utf-8"))


def read_statements() -> None:
    """Read every statement, which takes about 60 ms, so that none is read when no file descriptor is left."""
    for name in statement_names():
        statement(name)


def statement_names() -> list[str]:
    """Return the names of all statements in order."""
    folder = resources.files("fairlead.adapters.postgres").joinpath("sql")
    return sorted(f.name.removesuffix(".sql") for f in folder.iterdir() if f.name.endswith(".sql"))
