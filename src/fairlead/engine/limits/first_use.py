"""The first use of an installation, so that a fresh one grants slots at once.

PostgreSQL records that slots may be granted before the first one is. The process that writes the record knows
that none was granted on any server. Another process starts only after that record, and if it finds an empty
server it waits for one lease before it grants. So the writer's knowledge stays true for the length of a lease,
whatever happens to Redis. If the writer dies before, the others wait for a lease, which is safe. Spec: R23.
"""

from __future__ import annotations

from fairlead._core.clock import Clock
from fairlead.engine.ports import GateNotes


class FirstUse:
    """The first use, as one process knows it.

    Args:
        lease_s: The longest lease of a slot: the time for which others wait on an empty server.
    """

    def __init__(self, notes: GateNotes, prefix: str, *, clock: Clock, lease_s: float) -> None:
        self._notes = notes
        self._prefix = prefix
        self._clock = clock
        self._lease_s = lease_s
        self._new_until_mono: float | None = None

    async def begin(self) -> None:
        """Record the first use, before anything is admitted.

        Raises:
            DependencyUnavailableError: It was not recorded, so nothing may be admitted.
        """
        requested_mono = self._clock.monotonic()
        if await self._notes.record_first_use(self._prefix):
            self._new_until_mono = requested_mono + self._lease_s

    def is_new(self) -> bool:
        """Return whether no other process can have granted a slot."""
        return self._new_until_mono is not None and self._clock.monotonic() < self._new_until_mono
