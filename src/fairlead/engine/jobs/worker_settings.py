"""The settings of a worker: what it claims, how much at once, and how it waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fairlead.engine.ports import ClaimFilter
from fairlead.errors import InvalidConfigError


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of one worker; a process has one."""

    claims: ClaimFilter = field(default_factory=ClaimFilter)
    """Queues, kinds and providers; no kinds means all that have a handler here."""
    concurrency: int = 200
    """Jobs that run at the same time; default 200, two claims, so that one is fetched while one runs."""
    poll_s: float = 1.0
    """The poll interval, varied by a half; default 1 s."""
    claim_gap_s: float = 0.005
    """The time between the starts of two claims, so that capacity is filled in batches; default 5 ms."""
    grace_s: float = 60.0
    """From ``stop`` to the end of ``run``; default 60 s."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidConfigError(f"concurrency {self.concurrency} runs nothing", hint="give 1 or more")
        if not (self.poll_s > 0 and self.grace_s >= 0 and self.claim_gap_s >= 0):
            raise InvalidConfigError(
                "a worker's times are impossible", hint="poll_s above 0, no negative times"
            )


def limit_to_handled_kinds(claims: ClaimFilter, kinds: Iterable[str]) -> ClaimFilter:
    """Return *claims*, limited to kinds with a handler. Other kinds are left to other processes.

    Raises:
        InvalidConfigError: There is no handler, or *claims* names a kind without one.
    """
    handled = tuple(kinds)
    if not handled:  # an empty filter would mean every kind
        raise InvalidConfigError(
            "a worker without handlers runs nothing", hint="register one, or run no worker"
        )
    unknown = sorted(set(claims.kinds) - set(handled))
    if unknown:
        hint = f"kinds with a handler: {', '.join(handled)}"
        raise InvalidConfigError(f"no handler for kind {', '.join(unknown)}", hint=hint)
    return replace(claims, kinds=claims.kinds or handled)
