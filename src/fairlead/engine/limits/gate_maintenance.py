"""The hourly maintenance of the gate's keys, as part of the job ``clean_up`` of one process. Spec: G12.

Usually there is nothing to do, and its event says so: leases end by themselves, and every key expires. Leases
that are over and keys without an expiry are repaired.
"""

from __future__ import annotations

from fairlead.engine.ports import GateKeys
from fairlead.errors import LimiterUnavailableError
from fairlead.events import Emit, GateMaintenanceDone, ServiceFailed
from fairlead.policy.text.safe import safe_text

HOUR_S = 3600.0
GRACE_S = 5.0
"""A lease that has been over for this long is released: a later request to its pool would have done it."""
TTL_S = 32 * 86_400.0
"""The expiry of a key that has none: as long as the state of a domain is kept."""
MAX_KEYS = 500_000


class GateMaintenance:
    """The maintenance of one installation's keys."""

    def __init__(self, keys: GateKeys, *, emit: Emit) -> None:
        self._keys = keys
        self._emit = emit

    async def run(self) -> int:
        """Release leases that are over and set missing expiries; return how many, 0 if Redis is unavailable."""
        try:
            return await self._run()
        except LimiterUnavailableError as error:
            self._emit(ServiceFailed("gate-maintenance", safe_text(error)))
            return 0

    async def _run(self) -> int:
        survey = await self._keys.survey(max_keys=MAX_KEYS, leases=True, window_s=HOUR_S)
        ended = [lease for lease in survey.leases if lease.ends_in_s <= -GRACE_S]
        recovered = len(await self._keys.remove_leases(ended))
        cleaned = await self._keys.set_ttl(survey.no_ttl, TTL_S)
        event_counts = survey.event_counts or {}
        self._emit(
            GateMaintenanceDone(
                orphans=event_counts.get("expire", 0) + event_counts.get("recover", 0) + recovered,
                promoted=event_counts.get("promote", 0),
                cleaned=cleaned,
                keys=survey.keys,
                size_bytes=survey.size_bytes,
                used_bytes=survey.used_bytes,
                complete=survey.complete,
            )
        )
        return recovered + cleaned
