"""Whether nothing was ever granted here, so that a fresh installation begins at once (R23).

The note that slots may be granted is in PostgreSQL before the first one is. Who writes it knows that none
was, on any server: another process may begin only after that note, and where it finds an empty server it
waits for one lease before it grants. So for the length of a lease what the writer knows stays true, whoever
else begins and whatever becomes of Redis; if he dies before he has used it, the others wait for a lease,
which is safe.
"""

from __future__ import annotations

from fairlead._core.clock import Clock
from fairlead.engine.ports.gate_notes import GateNotes


class FirstUse:
    """One per process. *lease_s*: the longest lease of a slot; others wait for so long on an empty server."""

    def __init__(self, notes: GateNotes, prefix: str, *, clock: Clock, lease_s: float) -> None:
        self._notes = notes
        self._prefix = prefix
        self._clock = clock
        self._lease_s = lease_s
        self._new_until_s: float | None = None

    async def begin(self) -> None:
        """To be done before anything is admitted. DependencyUnavailableError: not noted, so do not begin."""
        asked_s = self._clock.monotonic()
        if await self._notes.starts(self._prefix):
            self._new_until_s = asked_s + self._lease_s

    def is_new(self) -> bool:
        """True only while no slot can have been granted by anybody else."""
        return self._new_until_s is not None and self._clock.monotonic() < self._new_until_s
