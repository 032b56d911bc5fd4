"""The migrations of this version: plain SQL files, in the order of their numbers.

A file is ``migrations/NNNN_name.sql``. Its header says ``-- Phase pre`` (safe while the version before it
still runs: to be applied before the new version starts) or ``-- Phase post`` (only once no older process is
left). ``-- transaction: none`` marks a file of one statement that cannot run inside a transaction: an index
built concurrently, or a CALL that commits step by step and sets its own lock timeouts. Such an index waits
for every older transaction and blocks none meanwhile. In a new installation it is built like any other, and
a CALL comes last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast

Phase = Literal["pre", "post"]

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_PHASE = re.compile(r"^-- Phase[ \t]+(pre|post)\b", re.MULTILINE)
_NO_TRANSACTION = re.compile(r"^-- transaction: none$", re.MULTILINE)
_CALL = re.compile(r"^CALL (\w+)", re.MULTILINE)
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)", re.MULTILINE)

PATIENCE_MS = 500
"""Of a migration for a table's lock: whoever waits for it makes everybody behind it wait (E10)."""
LOCK_TIMEOUT = "3s"
"""Of the first steps, and of a script."""
INDEX_PATIENCE_MS = 600_000
"""Of an index that is built beside the work, for transactions that are older: a report, a backup."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file. *checksum* is of its text with line ends normalised."""

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
    """Return the migrations of this version in order."""
    folder = resources.files("fairlead.adapters.postgres").joinpath("migrations")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return in_order([read_migration(file.name, file.read_text(encoding="utf-8")) for file in files])


def in_order(migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Return *migrations* by number; raise ValueError unless they are numbered 1, 2, 3, ..."""
    ordered = tuple(sorted(migrations, key=lambda migration: migration.number))
    if [migration.number for migration in ordered] != list(range(1, len(ordered) + 1)):
        raise ValueError(f"not numbered without gaps: {[migration.title for migration in ordered]}")
    return ordered
