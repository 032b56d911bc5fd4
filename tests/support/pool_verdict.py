"""What the log of a pool proves: never over the limit, nothing left over, nobody passed (G4).

The scripts write down each grant and each end in the step that made it, so the order of the lines is the
order of what happened. Here the lines are replayed against nothing but themselves: a slot is in use from its
grant to its release or its expiry, and that is all a pool may be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.policy.limits.limit import MICRO


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """One line: *used* and *capacity* as they were after it; *until_us*: the end of a lease that expired."""

    kind: str
    at_us: int
    used: int
    capacity: int
    holder: str
    until_us: int = 0


@dataclass(frozen=True, slots=True)
class PoolCheck:
    """What was counted; everything from *over_admissions* to *out_of_order* must be 0."""

    granted: int
    """All slots given, those handed over and adopted included."""
    handed: int
    promoted: int
    adopted: int
    """Told by their holders after a loss, so not granted here: the capacity does not count for these."""
    claimed: int
    released: int
    expired: int
    late: int
    """Ends of calls whose lease had ended before."""
    held: int
    """In use after the last line."""
    most: int
    over_adopted: int
    """The most slots beyond the capacity that an adoption brought."""
    longest_orphan_s: float
    """From the end of a lease to the line that took it out."""
    over_admissions: int
    leaked: int
    doubled: int
    """Granted to one who held it already."""
    unmatched: int
    """Ends without a beginning."""
    miscounted: int
    out_of_order: int
    violation: str
    """The first that was found, or nothing."""


@dataclass
class _Replay:
    in_order_within_us: int | None
    held: set[str] = field(default_factory=set)
    line: set[str] = field(default_factory=set)
    came_us: dict[str, int] = field(default_factory=dict)
    """When each stood in line for the first time: who has to come again keeps his place (R26)."""
    counts: dict[str, int] = field(default_factory=dict)
    most: int = 0
    over_adopted: int = 0
    longest_orphan_us: int = 0
    violation: str = ""

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def broken(self, name: str, event: PoolEvent, problem: str) -> None:
        self.count(name)
        if not self.violation:
            self.violation = f"{problem}: {event.kind} at {event.at_us} of {event.holder!r}"

    def take(self, event: PoolEvent) -> None:
        act = _ACTS.get(event.kind)
        if act is None:
            self.broken("unmatched", event, "a kind of line that there is not")
            return
        self.count(event.kind)
        act(self, event)
        self.most = max(self.most, len(self.held))
        if event.used != len(self.held):
            self.broken("miscounted", event, f"{event.used} in use by the log, {len(self.held)} by replay")

    # ---- beginnings

    def given(self, event: PoolEvent) -> None:
        """A grant: below the capacity, to one who has none, and to whoever waits longest."""
        self._begin(event)
        if len(self.held) > event.capacity:
            self.broken("over_admissions", event, f"{len(self.held)} slots of {event.capacity}")
        self.line.discard(event.holder)
        since_us = self.came_us.get(event.holder, event.at_us)
        if self.in_order_within_us is None or event.kind == "promote":
            return
        if any(self.came_us[other] < since_us - self.in_order_within_us for other in self.line):
            self.broken("out_of_order", event, "somebody waited longer")

    def adopted(self, event: PoolEvent) -> None:
        self._begin(event)
        self.line.discard(event.holder)
        self.over_adopted = max(self.over_adopted, len(self.held) - event.capacity)

    def _begin(self, event: PoolEvent) -> None:
        if event.holder in self.held:
            self.broken("doubled", event, "granted twice")
        self.held.add(event.holder)

    def claimed(self, event: PoolEvent) -> None:
        if event.holder not in self.held:
            self.broken("unmatched", event, "claimed what was not granted")

    # ---- ends

    def ended(self, event: PoolEvent) -> None:
        if event.holder not in self.held:
            self.broken("unmatched", event, "ended without a beginning")
        self.held.discard(event.holder)

    def expired(self, event: PoolEvent) -> None:
        self.ended(event)
        if event.until_us:
            self.longest_orphan_us = max(self.longest_orphan_us, event.at_us - event.until_us)
            if event.until_us > event.at_us:
                self.broken("unmatched", event, "expired before its end")

    def late(self, event: PoolEvent) -> None:
        if event.holder in self.held:
            self.broken("unmatched", event, "late, and in use")

    # ---- the line

    def waits(self, event: PoolEvent) -> None:
        self.came_us.setdefault(event.holder, event.at_us)
        self.line.add(event.holder)

    def leaves(self, event: PoolEvent) -> None:
        self.line.discard(event.holder)


_ACTS: Mapping[str, Callable[[_Replay, PoolEvent], None]] = {
    "grant": _Replay.given,
    "hand": _Replay.given,
    "promote": _Replay.given,
    "again": _Replay.adopted,
    "claim": _Replay.claimed,
    "release": _Replay.ended,
    "expire": _Replay.expired,
    "recover": _Replay.ended,
    "late": _Replay.late,
    "wait": _Replay.waits,
    "leave": _Replay.leaves,
    "absent": _Replay.leaves,
}


def verify_pool_log(
    events: Iterable[PoolEvent],
    *,
    holding: Collection[str] | None = None,
    in_order_within_us: int | None = None,
) -> PoolCheck:
    """Replay a whole log, from a pool that held nothing.

    *holding*: who may hold a slot after it (default: anybody); all others leak. *in_order_within_us*: no
    grant may pass one who came earlier by more than this (default: do not ask; classes and quotas pass some).
    """
    replay = _Replay(in_order_within_us)
    last = None
    for last in events:
        replay.take(last)
    leaked = set() if holding is None else replay.held - set(holding)
    if leaked and not replay.violation:
        replay.violation = f"{len(leaked)} slots are held by nobody: {sorted(leaked)[0]!r}"
    count = replay.counts.get
    return PoolCheck(
        granted=sum(count(kind, 0) for kind in ("grant", "hand", "promote", "again")),
        handed=count("hand", 0),
        promoted=count("promote", 0),
        adopted=count("again", 0),
        claimed=count("claim", 0),
        released=count("release", 0),
        expired=count("expire", 0),
        late=count("late", 0),
        held=len(replay.held),
        most=replay.most,
        over_adopted=replay.over_adopted,
        longest_orphan_s=replay.longest_orphan_us / MICRO,
        over_admissions=count("over_admissions", 0),
        leaked=len(leaked),
        doubled=count("doubled", 0),
        unmatched=count("unmatched", 0),
        miscounted=count("miscounted", 0),
        out_of_order=count("out_of_order", 0),
        violation=replay.violation,
    )
