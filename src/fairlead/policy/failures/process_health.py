"""Faults of this process and its host, as opposed to faults of a destination.

    descriptors, resources, resolver, proxy, pool     say nothing of the destination: no breaker counts them
    descriptors once, or any but pool at two          the process is sick: no jobs until a check passes
    destinations

One busy tenant can use up its own connections (pool) at any number of destinations, which alone does not make
the process sick.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fairlead.errors import FairleadError
from fairlead.policy.reasons import process_reasons

_FAULTS = (
    process_reasons.DESCRIPTORS,
    process_reasons.RESOURCES,
    process_reasons.RESOLVER,
    process_reasons.PROXY,
    process_reasons.POOL,
)
HINTS: Mapping[str, str] = MappingProxyType({fault.code: fault.hint for fault in _FAULTS})
"""What to do, by the kind of the fault. These kinds are faults of the process."""
_KINDS: Mapping[int | None, str] = {
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), process_reasons.DESCRIPTORS.code),
    **dict.fromkeys((errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL), process_reasons.RESOURCES.code),
}

MOST_CAUSES = 10
"""How many errors of a chain of causes are read."""
SICK_FROM = 2
"""How many destinations must be out of reach before the process counts as sick."""
WINDOW_S = 30.0
"""For how long a fault counts."""
CHECK_FIRST_S, CHECK_MOST_S = 1.0, 10.0
"""How long after a process got sick it is checked, and the longest time between two checks."""
TRIAL_S = 60.0
"""After so long it claims again even if nothing was reached, because all known destinations may be down."""
MOST_DESTINATIONS = 8
"""How many destinations are remembered."""


def own_fault_of(error: BaseException) -> str | None:
    """Return the kind of process fault that *error* is, by its errno; None if it is none."""
    return _KINDS.get(error.errno) if isinstance(error, OSError) else None


def lacks_descriptors(error: BaseException) -> bool:
    """Return whether *error*, or an error that led to it, says that no file descriptor was left.

    Libraries wrap the error of the operating system in errors of their own. The chain ends at an error of
    fairlead, which says by itself whether it was a fault of this process.
    """
    link: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if link is None or isinstance(link, FairleadError):
            return False
        if own_fault_of(link) == "descriptors":
            return True
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return False


def is_own_fault(kind: str | None) -> bool:
    """Return whether *kind*, the reason of a failed request, is a fault of this process."""
    return kind in HINTS


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """The health of one process. Times are monotonic seconds.

    Attributes:
        faults: The kind and the time of the latest fault of each destination since one was reached.
        reached: Destinations that were reached, the latest last.
        sick: The kind of fault that made the process sick; "" while it is well.
        since_mono: When it got sick.
        checks: How often it was checked since.
    """

    faults: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    reached: tuple[str, ...] = ()
    sick: str = ""
    since_mono: float = 0.0
    checks: int = 0

    @property
    def destinations(self) -> tuple[str, ...]:
        """The destinations to try in a check: those that failed, then those that were reached before."""
        return (*self.faults, *(name for name in self.reached[-SICK_FROM:] if name not in self.faults))


def failed(health: ProcessHealth, destination: str, kind: str, now_mono: float) -> ProcessHealth:
    """Return *health* after a connection to *destination* failed by a fault of *kind*.

    Faults of the destination change nothing, and neither does a full pool of a tenant's connections.
    """
    if not is_own_fault(kind) or kind == "pool":
        return health
    recent = [(p, f) for p, f in health.faults.items() if p != destination and now_mono - f[1] < WINDOW_S]
    faults = dict([*recent[1 - MOST_DESTINATIONS :], (destination, (kind, now_mono))])
    health = replace(health, faults=faults)
    if health.sick or (kind != "descriptors" and len(faults) < SICK_FROM):
        return health
    return replace(health, sick=kind, since_mono=now_mono, checks=0)


def reached(health: ProcessHealth, destination: str) -> ProcessHealth:
    """Return *health* after a new connection to *destination*. Only a check makes a sick process well."""
    latest = (*(name for name in health.reached if name != destination), destination)[-MOST_DESTINATIONS:]
    return replace(health, reached=latest, faults=health.faults if health.sick else {})


def next_check_s(health: ProcessHealth) -> float:
    """Return how long after the last check, or after it got sick, a sick process is checked."""
    return min(CHECK_MOST_S, CHECK_FIRST_S * 2.0 ** min(health.checks, 10))


def checked(health: ProcessHealth, *, has_spare: bool, is_connected: bool, now_mono: float) -> ProcessHealth:
    """Return *health* after a check.

    Args:
        health: That of a sick process.
        has_spare: Whether there are spare descriptors.
        is_connected: Whether any destination was reached.
        now_mono: The time of the check.
    """
    may_try = is_connected or health.sick == "descriptors" or now_mono - health.since_mono >= TRIAL_S
    if has_spare and may_try:
        return ProcessHealth(reached=health.reached)
    return replace(health, checks=health.checks + 1)
