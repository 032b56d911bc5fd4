"""How much memory this process has, and may have: /proc and control groups on Linux, ``ps`` elsewhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fairlead.engine.ports import MemoryUsage

_UNLIMITED = 1 << 60  # control groups write "no limit" as a number near 2^63


class SystemMemory:
    """The port MemoryGauge.

    Args:
        limit_bytes: Default: the smallest limit of this process's control groups and the machine's memory.
        root: The root of the file systems.
    """

    def __init__(self, limit_bytes: int | None = None, root: Path = Path("/")) -> None:
        self._root = root
        self._limit_bytes = limit_bytes or _smallest_limit(root)

    def usage(self) -> MemoryUsage:
        """Return the memory in use, the limit, and the used share of the fullest control group."""
        try:
            resident_pages = int((self._root / "proc/self/statm").read_text().split()[1])
            used = resident_pages * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            used = resident_by_ps(os.getpid())
        return MemoryUsage(
            used, self._limit_bytes, max(map(_used_share, _limit_files(self._root)), default=0.0)
        )


def resident_by_ps(pid: int) -> int:
    """Return the resident bytes of *pid* by ``ps``; 0 if it fails."""
    try:
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        return int(done.stdout) * 1024
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _smallest_limit(root: Path) -> int | None:
    """Return the smallest limit in bytes of the control groups and the machine; None if none is known."""
    limits = [limit for path in _limit_files(root) if (limit := _number(path)) is not None]
    with contextlib.suppress(OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _limit_files(root: Path) -> Iterator[Path]:
    """Yield the limit files of this process's control groups and their ancestors, for both versions."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        here = Path(group.lstrip("/"))
        yield from (top / folder / name for folder in (here, *here.parents))


def _used_share(limit_file: Path) -> float:
    """Return the fraction of its limit that a cgroup v2 uses, without page cache that the kernel can drop."""
    limit, used = _number(limit_file), _number(limit_file.with_name("memory.current"))
    if limit is None or used is None:
        return 0.0
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = limit_file.with_name("memory.stat").read_text().splitlines()
        used -= int(dict(line.split(" ", 1) for line in lines)["inactive_file"])
    return used / limit


def _number(path: Path) -> int | None:
    try:
        value = int(path.read_text())  # version 2 writes "max" where there is no limit
    except (OSError, ValueError):
        return None
    return value if 0 < value < _UNLIMITED else None
