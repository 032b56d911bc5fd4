"""Every state machine of fairlead, drawn once: code, SQL constraints and docs/states.md use these words.

A test compares the three. ``None`` stands for "there is no row": before the first arrow and after the last.
The statements in adapters/postgres/sql enforce these arrows by their WHERE clauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)


class JobState(StrEnum):
    """Of a job. ``scheduled`` and ``retryable`` are labels of available work that is not due (R18)."""

    AVAILABLE = "available"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


class DeadLetterStatus(StrEnum):
    """Of a dead letter. Only ``pending_review`` is open."""

    PENDING_REVIEW = "pending_review"
    AUTO_RESOLVED = "auto_resolved"
    MANUAL_RESOLVED = "manual_resolved"
    ABANDONED = "abandoned"


class Resolution(StrEnum):
    """How a dead letter was closed."""

    REAUTHORIZE = "reauthorize"
    CONFIG_FIX = "config_fix"
    MANUAL_REFRESH = "manual_refresh"
    REDRIVE = "redrive"
    ABANDONED = "abandoned"


class CredentialState(StrEnum):
    """Of a connection's credential."""

    ACTIVE = "active"
    UNKNOWN = "unknown"
    NEEDS_REAUTH = "needs_reauth"
    REVOKED = "revoked"


class LaneState(StrEnum):
    """Of a lane, which is all work that is blocked or served as one (policy/jobs/lane.py)."""

    READY = "ready"
    PARKED = "parked"
    IDLE = "idle"


class RotationPhase(StrEnum):
    """Of a refresh in flight; its row is gone once it is settled or given up."""

    INTENT = "intent"
    SENT = "sent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Transition(Generic[S]):
    """One arrow: in *source*, *event* leads to *target*."""

    source: S | None
    event: str
    target: S | None


class Machine(Generic[S]):
    """A transition table that can be asked. Each (state, event) has one target."""

    def __init__(self, states: type[S], *arrows: tuple[S | None, str, S | None]) -> None:
        self.states = states
        self.transitions = tuple(Transition(*arrow) for arrow in arrows)
        self._targets = {(arrow.source, arrow.event): arrow.target for arrow in self.transitions}
        if len(self._targets) != len(self.transitions):
            raise ValueError(f"{states.__name__}: two arrows for one event hint: name the events apart")

    def state_after(self, state: S | None, event: str) -> S | None:
        """Return the state after *event*.

        Raises:
            ValueError: *event* cannot happen in *state*.
        """
        if (state, event) not in self._targets:
            possible = sorted(other for source, other in self._targets if source == state)
            raise ValueError(f"{event!r} cannot happen to {state or 'no row'!s} hint: {possible} can")
        return self._targets[state, event]


_J, _L, _D, _C, _R = JobState, LaneState, DeadLetterStatus, CredentialState, RotationPhase

JOB = Machine(
    JobState,
    (None, "enqueue", _J.AVAILABLE),
    (_J.AVAILABLE, "claim", _J.RUNNING),
    (_J.AVAILABLE, "cancel", _J.CANCELLED),
    (_J.AVAILABLE, "expire", _J.DISCARDED),
    (_J.RUNNING, "complete", _J.COMPLETED),
    (_J.RUNNING, "retry", _J.AVAILABLE),
    (_J.RUNNING, "snooze", _J.AVAILABLE),
    (_J.RUNNING, "hand_back", _J.AVAILABLE),
    (_J.RUNNING, "rescue", _J.AVAILABLE),
    (_J.RUNNING, "cancel", _J.CANCELLED),
    (_J.RUNNING, "discard", _J.DISCARDED),
    (_J.RUNNING, "poison", _J.DISCARDED),
    (_J.COMPLETED, "prune", None),
    (_J.CANCELLED, "prune", None),
    (_J.DISCARDED, "prune", None),
)

LANE = Machine(
    LaneState,
    (None, "touch", _L.READY),
    (None, "touch_later", _L.PARKED),
    (None, "pause", _L.PARKED),
    (_L.READY, "serve", _L.READY),
    (_L.READY, "age", _L.READY),
    (_L.READY, "park", _L.PARKED),
    (_L.READY, "pause", _L.PARKED),
    (_L.PARKED, "touch", _L.READY),
    (_L.PARKED, "touch_later", _L.PARKED),
    (_L.PARKED, "wake", _L.READY),
    (_L.PARKED, "park", _L.PARKED),
    (_L.PARKED, "pause", _L.PARKED),
    (_L.PARKED, "rest", _L.IDLE),
    (_L.IDLE, "touch", _L.READY),
    (_L.IDLE, "touch_later", _L.PARKED),
    (_L.IDLE, "pause", _L.PARKED),
    (_L.IDLE, "prune", None),
)

DEAD_LETTER = Machine(
    DeadLetterStatus,
    (None, "die", _D.PENDING_REVIEW),
    (_D.PENDING_REVIEW, "replay", _D.PENDING_REVIEW),
    (_D.PENDING_REVIEW, "reopen", _D.PENDING_REVIEW),
    (_D.PENDING_REVIEW, "heal", _D.AUTO_RESOLVED),
    (_D.PENDING_REVIEW, "resolve", _D.MANUAL_RESOLVED),
    (_D.PENDING_REVIEW, "abandon", _D.ABANDONED),
    (_D.AUTO_RESOLVED, "prune", None),
    (_D.MANUAL_RESOLVED, "prune", None),
    (_D.ABANDONED, "prune", None),
)

CREDENTIAL = Machine(
    CredentialState,
    (None, "connect", _C.ACTIVE),
    (_C.ACTIVE, "settle", _C.ACTIVE),
    (_C.ACTIVE, "lose_answer", _C.UNKNOWN),
    (_C.ACTIVE, "require_reauth", _C.NEEDS_REAUTH),
    (_C.ACTIVE, "reconnect", _C.ACTIVE),
    (_C.ACTIVE, "revoke", _C.REVOKED),
    (_C.ACTIVE, "remove", None),
    (_C.UNKNOWN, "settle", _C.ACTIVE),
    (_C.UNKNOWN, "release", _C.ACTIVE),
    (_C.UNKNOWN, "lose_answer", _C.UNKNOWN),
    (_C.UNKNOWN, "require_reauth", _C.NEEDS_REAUTH),
    (_C.UNKNOWN, "reconnect", _C.ACTIVE),
    (_C.UNKNOWN, "revoke", _C.REVOKED),
    (_C.UNKNOWN, "remove", None),
    (_C.NEEDS_REAUTH, "settle", _C.ACTIVE),
    (_C.NEEDS_REAUTH, "reconnect", _C.ACTIVE),
    (_C.NEEDS_REAUTH, "revoke", _C.REVOKED),
    (_C.NEEDS_REAUTH, "remove", None),
    (_C.REVOKED, "reconnect", _C.ACTIVE),
    (_C.REVOKED, "remove", None),
)

ROTATION = Machine(
    RotationPhase,
    (None, "claim", _R.INTENT),
    (_R.INTENT, "take_over", _R.INTENT),
    (_R.INTENT, "mark_sent", _R.SENT),
    (_R.INTENT, "release", None),
    (_R.INTENT, "release_replay", _R.UNKNOWN),
    (_R.INTENT, "supersede", None),
    (_R.SENT, "recover", _R.SENT),
    (_R.SENT, "settle", None),
    (_R.SENT, "release", None),
    (_R.SENT, "release_replay", _R.UNKNOWN),
    (_R.SENT, "lose_answer", _R.UNKNOWN),
    (_R.SENT, "require_reauth", None),
    (_R.SENT, "supersede", None),
    (_R.UNKNOWN, "recover", _R.UNKNOWN),
    (_R.UNKNOWN, "replay", _R.INTENT),
    (_R.UNKNOWN, "settle", None),
    (_R.UNKNOWN, "release", None),
    (_R.UNKNOWN, "require_reauth", None),
    (_R.UNKNOWN, "supersede", None),
)
