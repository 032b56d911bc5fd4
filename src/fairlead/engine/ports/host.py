"""The machine this process runs on: its memory, and proof that another process of it is dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fairlead.engine.ports.processes import ProcessIdentity


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """The memory of this process.

    Attributes:
        limit_bytes: The most it may use. None: no limit is known.
        group_share: The fraction of a control group's limit in use, for the fullest group; 0.0: unknown.
    """

    used_bytes: int
    limit_bytes: int | None
    group_share: float = 0.0

    @property
    def share(self) -> float:
        """Used of the limit, 0.0 to about 1.0; 0.0 where there is no limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


class MemoryGauge(Protocol):
    """Tells how much memory this process uses."""

    def usage(self) -> MemoryUsage:
        """Now; cheap enough to be asked every few seconds. Never raises: what is unknown reads 0 or None."""
        ...


class ProcessProbe(Protocol):
    """Proves that a process of this host is dead (R7): by boot id, pid namespace, pid and start time."""

    def identity(self) -> ProcessIdentity:
        """Of this process."""
        ...

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """True only with proof; False for a living process, for one of another host, and for doubt."""
        ...
