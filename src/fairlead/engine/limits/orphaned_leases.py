"""Leases without a holder: its process is gone, or the lease is over and its pool was not used since.

A lease ends by itself, so an orphan costs its slot for the rest of it: seconds for a call, hours for a bulk
operation. To release it earlier one must be sure. A process that lost its session may run on under a new one,
so it counts as gone only if no session of the same process is alive. A lease that is renewed between two
checks has a holder, whatever the sessions say. Spec: G12.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead._core.clock import Clock
from fairlead.engine.ports import GateKeys, SessionStore, SessionView, StoredLease
from fairlead.policy.limits.bulk_token import UNTIED

WATCH_S = 14.0
"""The time between two checks: a holder renews a lease of 30 s every 10 to 13 s."""
ALIVE = ("alive", "late")
PROCESS_GONE, LEASE_OVER = "its process is gone", "its lease is over"


@dataclass(frozen=True, slots=True)
class Orphan:
    """One lease, why it is an orphan, and the session of its holder if it is known."""

    lease: StoredLease
    why: str
    session: SessionView | None = None


def orphans(leases: Iterable[StoredLease], sessions: Sequence[SessionView]) -> list[Orphan]:
    """Return those of *leases* that are orphans according to *sessions*, the earliest end first."""
    by_id = {str(session.session_id): session for session in sessions}
    alive = {session.identity for session in sessions if session.state in ALIVE}
    result: list[Orphan] = []
    for lease in sorted(leases, key=lambda lease: lease.until_us):
        session = by_id.get(lease.process)
        if lease.ends_in_s <= 0:
            result.append(Orphan(lease, LEASE_OVER, session))
        elif lease.process.startswith(UNTIED):  # any process that has its token may continue it
            continue
        elif session is None or session.identity not in alive:
            result.append(Orphan(lease, PROCESS_GONE, session))
    return result


def not_renewed(earlier: Iterable[Orphan], later: Iterable[Orphan]) -> list[Orphan]:
    """Return those of *later* that were not renewed since *earlier*."""
    earlier_us = {(orphan.lease.key, orphan.lease.holder): orphan.lease.until_us for orphan in earlier}
    return [
        orphan
        for orphan in later
        if earlier_us.get((orphan.lease.key, orphan.lease.holder)) == orphan.lease.until_us
    ]


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """The orphans of one check. *complete* False: not every key was read, so there may be more."""

    orphans: list[Orphan]
    complete: bool


class OrphanSearch:
    """The search for orphans, which are released only after they have been confirmed."""

    def __init__(self, keys: GateKeys, sessions: SessionStore, *, clock: Clock) -> None:
        self._keys = keys
        self._sessions = sessions
        self._clock = clock

    async def find(self) -> OrphanReport:
        """Return the leases that look like orphans now.

        Raises:
            LimiterUnavailableError: Redis is unavailable.
            DependencyUnavailableError: PostgreSQL is unavailable.
        """
        survey = await self._keys.survey(sample=0, leases=True)
        # Sessions are read after the leases: by then every holder of one of these has a session.
        return OrphanReport(orphans(survey.leases, await self._sessions.search()), survey.complete)

    async def confirm(self, watch_s: float = WATCH_S) -> OrphanReport:
        """Return the orphans that were not renewed for *watch_s*. Raises as `find`."""
        earlier = await self.find()
        if all(orphan.why == LEASE_OVER for orphan in earlier.orphans):
            return earlier
        await self._clock.sleep(watch_s)
        later = await self.find()
        return OrphanReport(not_renewed(earlier.orphans, later.orphans), later.complete)

    async def release(self, orphans: Iterable[Orphan]) -> list[Orphan]:
        """End the leases, and return those that were ended. Waiting calls get their slots within a second."""
        by_lease = {(orphan.lease.key, orphan.lease.holder): orphan for orphan in orphans}
        ended = await self._keys.remove_leases([orphan.lease for orphan in by_lease.values()])
        return [by_lease[lease.key, lease.holder] for lease in ended]
