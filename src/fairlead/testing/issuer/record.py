"""The ledger file: append-only NDJSON, one line for each event, in order.

Every line has ``t`` (the issuer's monotonic clock, comparable with ``time.monotonic()`` of other processes on the
host), ``seq`` (a missing number shows a lost line) and ``ev``. `fairlead.testing.ledger` reads and judges it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter

FLUSH_S = 0.05

_LINE = TypeAdapter(dict[str, object])


class LedgerWriter:
    """A writer that appends to *path*, which it creates with mode 0600.

    With *sync* the kernel has each line before `write` returns. Otherwise lines wait at most 50 ms of a running
    loop; `close` and a normal exit write them.
    """

    def __init__(self, path: Path, *, sync: bool, monotonic: Callable[[], float]) -> None:
        self.path = path
        self._sync = sync
        self._monotonic = monotonic
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._seq = 0
        self._waiting = bytearray() if _is_complete(path) else bytearray(b"\n")
        self._timer: asyncio.TimerHandle | None = None
        atexit.register(self.flush)

    def write(self, ev: str, **fields: object) -> None:
        """Add one line, without the fields that are None; after `close` do nothing."""
        if self._file < 0:
            return
        self._seq += 1
        line: dict[str, object] = {"t": round(self._monotonic(), 6), "seq": self._seq, "ev": ev}
        line.update({name: value for name, value in fields.items() if value is not None})
        self._waiting += _encode(line)
        self._waiting += b"\n"
        if self._sync or not self._flush_later():
            self.flush()

    def _flush_later(self) -> bool:
        """Schedule a flush and return True, or return False without a running loop."""
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
            except RuntimeError:
                return False
        return True

    def flush(self) -> None:
        """Write all waiting lines; an OSError (disk full) leaves them waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            del self._waiting[: os.write(self._file, self._waiting)]

    def close(self) -> None:
        """Write the waiting lines and close the file; a second call does nothing."""
        if self._file < 0:
            return
        self.flush()
        atexit.unregister(self.flush)
        os.close(self._file)
        self._file = -1


def _is_complete(path: Path) -> bool:
    """Return whether the file is empty or ends with a newline; a killed run can leave half a line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        return size == 0 or (file.seek(size - 1), file.read(1))[1] == b"\n"


def _encode(line: dict[str, object]) -> bytes:
    try:
        return _LINE.dump_json(line)  # three times as fast as json.dumps, and lines are most of the work
    except ValueError:  # a client name with a lone surrogate
        return json.dumps(line).encode()
