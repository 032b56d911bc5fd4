"""Files that grow while the demo runs: the issuer's ledger and the workers' logs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Tail:
    """Reads the JSON lines of *file* that are new since the last time; half a line waits for its rest."""

    def __init__(self, file: Path, holding: bytes = b"") -> None:
        """*holding*: only lines that hold this text are parsed."""
        self._file = file
        self._holding = holding
        self._at = 0

    def news(self) -> Iterator[dict[str, Any]]:
        """The new lines."""
        with self._file.open("rb") as opened:
            opened.seek(self._at)
            new = opened.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            if self._holding in line and line.startswith(b"{"):
                yield json.loads(line)


class IssuerTraffic:
    """What the issuer has met so far: requests for tokens, and its answers by status."""

    def __init__(self, ledger: Path) -> None:
        self._tail = Tail(ledger)
        self.posts = 0
        self.statuses: Counter[int] = Counter()

    def look(self) -> None:
        """Take in what is new."""
        for entry in self._tail.news():
            if entry["ev"] == "arrived":
                self.posts += 1
            elif entry["ev"] == "answered" and "status" in entry:
                self.statuses[entry["status"]] += 1


class RetryCounts:
    """Retries that the workers have ordered so far, by category of the failure; read from their logs."""

    def __init__(self) -> None:
        self._tails: dict[Path, Tail] = {}
        self.by_category: Counter[str] = Counter()

    def look(self, logs: list[Path]) -> None:
        """Take in what is new."""
        for log in logs:
            tail = self._tails.setdefault(log, Tail(log, b'"retried"'))
            self.by_category.update(str(entry.get("category")) for entry in tail.news())
