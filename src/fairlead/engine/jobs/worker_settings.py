"""What a worker takes, how much at once, and how it waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fairlead.engine.ports import ClaimFilter
from fairlead.errors import InvalidConfigError


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Of one worker; one serves a process."""

    wanted: ClaimFilter = field(default_factory=ClaimFilter)
    """Queues, kinds and providers; no kinds means all that have a handler here."""
    concurrency: int = 200
    """Jobs that run at the same time; default 200: two claims' worth, so one is fetched while one runs."""
    poll_s: float = 1.0
    """How often to look without a hint, spread by a half; default 1 s."""
    claim_gap_s: float = 0.005
    """Between the beginnings of two claims, so that busy slots are filled in batches; default 5 ms."""
    grace_s: float = 60.0
    """From ``stop`` to the end of ``run``; default 60 s."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidConfigError(f"concurrency {self.concurrency} runs nothing", hint="give 1 or more")
        if not (self.poll_s > 0 and self.grace_s >= 0 and self.claim_gap_s >= 0):
            raise InvalidConfigError(
                "a worker's times are impossible", hint="poll_s above 0, no negative times"
            )


def runnable(wanted: ClaimFilter, kinds: Iterable[str]) -> ClaimFilter:
    """*wanted*, narrowed to what has a handler: other kinds are left to processes that know them."""
    known = tuple(kinds)
    if not known:  # an empty filter would mean every kind
        raise InvalidConfigError(
            "a worker without handlers runs nothing", hint="register one, or run no worker"
        )
    unknown = sorted(set(wanted.kinds) - set(known))
    if unknown:
        hint = f"kinds with a handler: {', '.join(known)}"
        raise InvalidConfigError(f"no handler for kind {', '.join(unknown)}", hint=hint)
    return replace(wanted, kinds=wanted.kinds or known)
