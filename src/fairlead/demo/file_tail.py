"""Files that grow while the demo runs: the issuer's ledger and the workers' logs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Tail:
    """A reader of the new JSON lines of *file*; half a line waits for its rest."""

    def __init__(self, file: Path, containing: bytes = b"") -> None:
        """Read *file*; parse only the lines with the text *containing*."""
        self._file = file
        self._containing = containing
        self._offset = 0

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield the new lines."""
        with self._file.open("rb") as opened:
            opened.seek(self._offset)
            new = opened.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            if self._containing in line and line.startswith(b"{"):
                yield json.loads(line)


class IssuerTraffic:
    """The requests for tokens at the issuer so far, and its responses by status."""

    def __init__(self, ledger: Path) -> None:
        self._tail = Tail(ledger)
        self.posts = 0
        self.statuses: Counter[int] = Counter()

    def update(self) -> None:
        """Read the new lines."""
        for entry in self._tail.news():
            if entry["ev"] == "arrived":
                self.posts += 1
            elif entry["ev"] == "answered" and "status" in entry:
                self.statuses[entry["status"]] += 1


class RetryCounts:
    """The retries that the workers have scheduled so far, by category of the failure; read from their logs."""

    def __init__(self) -> None:
        self._tails: dict[Path, Tail] = {}
        self.by_category: Counter[str] = Counter()

    def update(self, logs: list[Path]) -> None:
        """Read the new lines."""
        for log in logs:
            tail = self._tails.setdefault(log, Tail(log, b'"retried"'))
            self.by_category.update(str(entry.get("category")) for entry in tail.news())
