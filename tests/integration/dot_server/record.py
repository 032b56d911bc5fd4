"""A file of JSON lines, each written at once: what stands there has happened, whoever dies afterwards.

Times are of the machine's monotonic clock, so that processes of one machine can compare them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Record:
    """Appends lines. Safe for threads: one write per line to a file opened for appending."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, **fields: object) -> None:
        line = json.dumps({"event": event, "at_s": time.monotonic(), **fields}) + "\n"
        os.write(self._file, line.encode())


def read_record(path: Path) -> list[dict[str, Any]]:
    """All lines so far; one that is being written is left for the next look."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]
