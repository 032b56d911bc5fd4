"""Boxes of memory for processes: who outgrows its box is killed, by the kernel where it can be asked to.

Control groups (version 1 or 2) need rights that not every host gives. Without them a watcher does what the
kernel would: it looks at the resident memory every few milliseconds and sends SIGKILL. ``how`` says which.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairlead.adapters.local.memory_usage import resident_by_ps

LOOK_S = 0.002
_ROOT = Path("/sys/fs/cgroup")
_VERSIONS = (
    (_ROOT / "memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    (_ROOT, "memory.max", "memory.swap.max"),
)
_numbers = itertools.count()


class Boxes:
    """Made by `boxes`; one box a process."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._groups: list[Path] = []
        self._watched: set[int] = set()
        self._over = threading.Event()
        first = self._group()
        self.how = "watcher" if first is None else f"cgroup v{1 if first.parent.name == 'memory' else 2}"
        self._spare = first

    def order(self) -> dict[str, str]:
        """What a child's order needs to be born in a box of its own (support/bomb.py heeds it)."""
        group, self._spare = self._spare or self._group(), None
        return {} if group is None else {"memory_group": str(group)}

    def watch(self, pid: int) -> None:
        """Where the kernel does not watch *pid*, watch it."""
        if self.how == "watcher":
            self._watched.add(pid)

    def _group(self) -> Path | None:
        for root, limit, swap in _VERSIONS:
            group = root / f"fairlead-{os.getpid()}-{next(_numbers)}"
            with suppress(OSError):
                group.mkdir()
                self._groups.append(group)
                (group / limit).write_text(str(self.limit_bytes))
                with suppress(OSError):  # without swap there is no such file
                    (group / swap).write_text("0" if swap.endswith("max") else str(self.limit_bytes))
                return group
        return None

    def look(self) -> None:
        """Until the end: kill who has outgrown its box."""
        while not self._over.wait(LOOK_S):
            for pid in list(self._watched):
                if _resident_bytes(pid) > self.limit_bytes:
                    self._watched.discard(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Remove the boxes; whoever was in them must have ended."""
        self._over.set()
        for group in self._groups:
            with suppress(OSError):
                group.rmdir()


@contextmanager
def boxes(limit_bytes: int) -> Iterator[Boxes]:
    """For as long as the block lasts."""
    boxes_made = Boxes(limit_bytes)
    watcher = threading.Thread(target=boxes_made.look, name="memory watcher")
    if boxes_made.how == "watcher":
        watcher.start()
    try:
        yield boxes_made
    finally:
        boxes_made.close()
        if boxes_made.how == "watcher":
            watcher.join()


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return resident_by_ps(pid) if not Path("/proc/self").exists() else 0
