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
        """The fraction of the limit in use, 0.0 to about 1.0; 0.0 without a limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


class MemoryGauge(Protocol):
    """A gauge of this process's memory."""

    def usage(self) -> MemoryUsage:
        """Return the current use.

        Cheap enough to call every few seconds. Never raises: unknown is 0 or None.
        """
        ...


class ProcessProbe(Protocol):
    """A probe that proves that a process of this host is dead, by boot id, pid namespace, pid and start time.

    Spec: R7.
    """

    def identity(self) -> ProcessIdentity:
        """Return the identity of this process."""
        ...

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """Return True only with proof; False for a living process, one of another host, and in doubt."""
        ...
