"""The baseline of the schema and the migrations after it: plain SQL files, in the order of their numbers.

The baseline is number 0: ``schema/`` has the tables by subject and ``functions/`` one function a file. Until
0.1.0 is released, changes go into the baseline, and a database made by an older text of it is refused.

A later migration is ``migrations/NNNN_name.sql``. Its header says ``-- Phase pre`` (safe while the version
before it still runs: to be applied before the new version starts) or ``-- Phase post`` (only once no older
process is left). ``-- transaction: none`` marks a file of one statement that cannot run inside a transaction:
an index built concurrently, or a CALL that commits step by step and sets its own lock timeouts. Such an index
waits for every older transaction and blocks none meanwhile. In a new installation it is built like any other,
and a CALL comes last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib import resources
from typing import Literal, cast

Phase = Literal["pre", "post"]

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_PHASE = re.compile(r"^-- Phase[ \t]+(pre|post)\b", re.MULTILINE)
_NO_TRANSACTION = re.compile(r"^-- transaction: none$", re.MULTILINE)
_CALL = re.compile(r"^CALL (\w+)", re.MULTILINE)
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_DEFINES = re.compile(r"^CREATE (?:UNLOGGED )?(?:TABLE|VIEW|SEQUENCE|FUNCTION|PROCEDURE) (\w+)", re.MULTILINE)

BASELINE = 0
"""The number of the baseline."""

PATIENCE_MS = 500
"""How long a migration waits for a table's lock. All later statements on the table queue behind it."""
LOCK_TIMEOUT = "3s"
"""Of the first steps, and of a script."""
INDEX_PATIENCE_MS = 600_000
"""Of an index that is built beside the work, for transactions that are older: a report, a backup."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The baseline or one later file. *checksum* is of its text with line ends normalised."""

    number: int
    name: str
    phase: Phase
    transactional: bool
    text: str
    checksum: str

    @property
    def title(self) -> str:
        """The file name without its extension."""
        return f"{self.number:04}_{self.name}"

    @property
    def index(self) -> str | None:
        """The index that it builds concurrently. A failure leaves one that is INVALID."""
        built = None if self.transactional else _INDEX.search(self.text)
        return None if built is None else built[1]

    @property
    def calls(self) -> bool:
        """Whether it calls a procedure that commits step by step."""
        return not self.transactional and _CALL.search(self.text) is not None

    @property
    def record(self) -> dict[str, object]:
        """Its row in the table ``migration``."""
        return {"number": self.number, "name": self.name, "phase": self.phase, "checksum": self.checksum}


def read_migration(file_name: str, text: str) -> Migration:
    """Return the migration in one file; raise ValueError if its name or header breaks the rules above."""
    named, phase = _FILE.fullmatch(file_name), _PHASE.search(text)
    if named is None or phase is None:
        raise ValueError(f"{file_name}: must be NNNN_name.sql with a line `-- Phase pre` or `-- Phase post`")
    text = text.replace("\r\n", "\n")
    return Migration(
        number=int(named[1]),
        name=named[2],
        phase=cast(Phase, phase[1]),
        transactional=_NO_TRANSACTION.search(text) is None,
        text=text,
        checksum=hashlib.sha256(text.encode()).hexdigest(),
    )


@cache
def shipped_migrations() -> tuple[Migration, ...]:
    """Return the baseline and the migrations of this version in order."""
    later = [read_migration(name, text) for name, text in _files("migrations")]
    return in_order([_baseline(), *later])


def in_order(migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Return *migrations* by number; raise ValueError if a number is missing. They begin with 0 or 1."""
    ordered = tuple(sorted(migrations, key=lambda migration: migration.number))
    first = min(1, ordered[0].number) if ordered else 1
    if [migration.number for migration in ordered] != list(range(first, first + len(ordered))):
        raise ValueError(f"not numbered without gaps: {[migration.title for migration in ordered]}")
    return ordered


def _baseline() -> Migration:
    parts = {f"schema/{name}": text for name, text in _files("schema")}
    parts |= {f"functions/{name}": text for name, text in _files("functions")}
    text = "\n".join(parts[name] for name in definition_order(parts))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return Migration(BASELINE, "baseline", "pre", transactional=True, text=text, checksum=checksum)


def definition_order(parts: Mapping[str, str]) -> list[str]:
    """Return the names of *parts* so that each stands behind those that define what it uses.

    Raises:
        CycleError: Two parts need each other.
    """
    bare = {name: _COMMENT.sub("", text) for name, text in parts.items()}
    home = {defined: name for name, text in bare.items() for defined in _DEFINES.findall(text)}
    words = {name: set(re.findall(r"\w+", text)) for name, text in bare.items()}
    needs = {name: {home[word] for word in words[name] & home.keys()} - {name} for name in bare}
    roles = {name for name, text in bare.items() if "CREATE ROLE" in text and name.startswith("schema/")}
    for name in needs.keys() - roles:
        needs[name] |= roles
    return list(TopologicalSorter(dict(sorted(needs.items()))).static_order())


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the SQL files of *folder*, with line ends normalised."""
    path = resources.files("fairlead.adapters.postgres").joinpath(folder)
    for file in sorted(path.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            yield file.name, file.read_text(encoding="utf-8").replace("\r\n", "\n")
