"""Looks after the gate's keys once an hour, once in the fleet, and tells what it found (G12).

A part of the job ``clean_up``, which one process has at a time. There is little to do, and that is what it
tells: leases end by themselves, and every key has a time to live. What was left over all the same is mended.
"""

from __future__ import annotations

from fairlead.engine.ports import GateKeys
from fairlead.errors import LimiterUnavailableError
from fairlead.events import Emit, GateMaintenanceDone, ServiceFailed
from fairlead.policy.text.safe import safe_text

HOUR_S = 3600.0
GRACE_S = 5.0
"""A lease that is over for so long is taken out: nobody has asked its pool since, or it would be."""
TTL_S = 32 * 86_400.0
"""What a key without an end of its life is given; as long as the numbers of a domain live."""
MOST_KEYS = 500_000


class GateMaintenance:
    """One run an hour."""

    def __init__(self, keys: GateKeys, *, emit: Emit) -> None:
        self._keys = keys
        self._emit = emit

    async def run(self) -> int:
        """Mend what is left over; how many leases and keys. 0 where Redis is away."""
        try:
            return await self._run()
        except LimiterUnavailableError as error:
            self._emit(ServiceFailed("gate-maintenance", safe_text(error)))
            return 0

    async def _run(self) -> int:
        survey = await self._keys.survey(max_keys=MOST_KEYS, leases=True, window_s=HOUR_S)
        over = [lease for lease in survey.leases if lease.ends_in_s <= -GRACE_S]
        recovered = len(await self._keys.remove_leases(over))
        cleaned = await self._keys.set_ttl(survey.no_ttl, TTL_S)
        happened = survey.event_counts or {}
        self._emit(
            GateMaintenanceDone(
                orphans=happened.get("expire", 0) + happened.get("recover", 0) + recovered,
                promoted=happened.get("promote", 0),
                cleaned=cleaned,
                keys=survey.keys,
                size_bytes=survey.size_bytes,
                used_bytes=survey.used_bytes,
                complete=survey.complete,
            )
        )
        return recovered + cleaned
