"""Leases that nobody will give back: their holder is gone, or they are over and nobody came by since (G12).

A lease ends by itself, so an orphan costs its slot for the rest of it: seconds for a call, hours for a lock
of that length. To take it earlier one must be sure. A process whose session was lost may live on under a new
one, so it counts as gone only where no session of the same process is alive; and a lease that is renewed
between two looks has a holder, whatever the sessions say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead._core.clock import Clock
from fairlead.engine.ports import GateKeys, SessionStore, SessionView, StoredLease
from fairlead.policy.limits.bulk_token import UNTIED

WATCH_S = 14.0
"""Between two looks: a lease of 30 s is renewed by its holder every 10 to 13 s."""
ALIVE = ("alive", "late")
GONE, OVER = "its process is gone", "its lease is over"


@dataclass(frozen=True, slots=True)
class Orphan:
    """One lease, why it is an orphan, and the session of its holder where one is known."""

    lease: StoredLease
    why: str
    session: SessionView | None = None


def orphans(leases: Iterable[StoredLease], sessions: Sequence[SessionView]) -> list[Orphan]:
    """Those of *leases* that are orphans by *sessions*, the earliest end first."""
    known = {str(session.session_id): session for session in sessions}
    alive = {session.identity for session in sessions if session.state in ALIVE}
    found: list[Orphan] = []
    for lease in sorted(leases, key=lambda each: each.until_us):
        session = known.get(lease.process)
        if lease.ends_in_s <= 0:
            found.append(Orphan(lease, OVER, session))
        elif lease.process.startswith(UNTIED):  # whoever has its token goes on with it
            continue
        elif session is None or session.identity not in alive:
            found.append(Orphan(lease, GONE, session))
    return found


def unmoved(earlier: Iterable[Orphan], later: Iterable[Orphan]) -> list[Orphan]:
    """Those of *later* whose lease was as long before: nobody renewed it between the two looks."""
    before = {(orphan.lease.key, orphan.lease.holder): orphan.lease.until_us for orphan in earlier}
    return [
        orphan
        for orphan in later
        if before.get((orphan.lease.key, orphan.lease.holder)) == orphan.lease.until_us
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """Orphans of one look. *complete* False: the bound of the look was reached, there may be more."""

    orphans: list[Orphan]
    complete: bool


class OrphanSearch:
    """Looks for orphans, and makes sure of them."""

    def __init__(self, keys: GateKeys, sessions: SessionStore, *, clock: Clock) -> None:
        self._keys = keys
        self._sessions = sessions
        self._clock = clock

    async def look(self) -> Found:
        """What looks like one now. LimiterUnavailableError, DependencyUnavailableError."""
        survey = await self._keys.survey(sample=0, leases=True)
        # Sessions are read after the leases: who took one of these had a session by then.
        return Found(orphans(survey.leases, await self._sessions.search()), survey.complete)

    async def sure(self, watch_s: float = WATCH_S) -> Found:
        """What is one for sure: no lease of these was renewed for *watch_s*."""
        earlier = await self.look()
        if all(orphan.why == OVER for orphan in earlier.orphans):
            return earlier
        await self._clock.sleep(watch_s)
        later = await self.look()
        return Found(unmoved(earlier.orphans, later.orphans), later.complete)

    async def give_back(self, found: Iterable[Orphan]) -> list[Orphan]:
        """End their leases; those that were ended. Whoever waits for their slots has them within a second."""
        asked = {(orphan.lease.key, orphan.lease.holder): orphan for orphan in found}
        ended = await self._keys.remove_leases([orphan.lease for orphan in asked.values()])
        return [asked[lease.key, lease.holder] for lease in ended]
