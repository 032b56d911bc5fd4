"""On which history of the database the answers of each owner are settled: `<owner>.timeline` (R11).

Whoever takes over the files of a dead owner learns from it whether the database was failed over since: then
what the owner had marked as settled may be lost there. Only the holder of the owner's lock writes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairlead.adapters.journal.disk import Disk

SUFFIX = ".timeline"
_MOST_BYTES = 200


class Timelines:
    """The timelines of the owners in *folder*; not for several threads at once."""

    def __init__(self, folder: Path, own: str, disk: Disk) -> None:
        self._folder = folder
        self._own = own
        self._disk = disk
        self._known: dict[str, str | None] = {}

    def others_than(self, timeline: str, owners: Iterable[str]) -> dict[str, str | None]:
        """Those of *owners* that are on another one than *timeline*, or on none that is known.

        Ourselves we begin on the first that we hear of.
        """
        on = {owner: self._of(owner) for owner in owners}
        if self._own in on and on[self._own] is None:
            self.write([self._own], timeline)
            del on[self._own]
        return {owner: before for owner, before in on.items() if before != timeline}

    def write(self, owners: Iterable[str], timeline: str) -> None:
        """*owners* are on *timeline* now. What cannot be written is settled once more by who comes next."""
        for owner in owners:
            self._known[owner] = timeline
            with suppress(OSError):
                self._disk.replace(self._folder / f"{owner}{SUFFIX}", timeline.encode())

    def _of(self, owner: str) -> str | None:
        if owner not in self._known:
            self._known[owner] = _read(self._folder / f"{owner}{SUFFIX}")
        return self._known[owner]


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, _MOST_BYTES).decode(errors="replace") or None
    except OSError:
        return None
    finally:
        os.close(descriptor)
