"""What is seen from outside while a fleet works: told by the edges, never by the product's own figures.

Everything is told as a value (`Seen`) with the moment and the process it is about, and each invariant sees it
at once. The first breach ends the run, so its moment is the end of the trace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

NOBODY = ""
"""The process of what the world does by itself."""
_OF_ONE_RUN = re.compile(r"[\w./#-]*(?:[\d/#-]|\w\.\w)[\w./#-]*")
"""Words that another run of the same breach has otherwise: numbers, ids, names with a number or a dash."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A breach: which invariant, when, and what happened in plain words."""

    invariant: str
    at: float
    why: str

    @property
    def kind(self) -> str:
        """The same for the same mistake at another moment, in another job or process."""
        return f"{self.invariant}: {_OF_ONE_RUN.sub('_', self.why)}"

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at:.3f} s: {self.why}"


# ---- jobs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Enqueued:
    """An enqueue returned: *work* is the piece of work that the job is for, whatever job does it."""

    job_id: UUID
    work: int
    tenant: str


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """An enqueue that was not answered is repeated under its key."""

    work: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """Somebody had a dead letter's work tried again."""

    dead_letter_id: UUID


@dataclass(frozen=True, slots=True)
class Claimed:
    """The store gave a job away under a new lease. *waited_s*: since it was due."""

    job_id: UUID
    lease_id: int
    session_id: UUID
    tenant: str
    kind: str
    waited_s: float


@dataclass(frozen=True, slots=True)
class Freed:
    """A lease ended without an outcome; *crash*: its process died, and that counts."""

    job_id: UUID
    lease_id: int | None
    crash: bool


@dataclass(frozen=True, slots=True)
class Accepted:
    """The store took an outcome as the job's; *outcome* is the name of its class, in small letters.

    Of what was rescheduled without a failure, so that it burnt no attempt, it is "handed_back".
    """

    job_id: UUID
    lease_id: int
    outcome: str
    work: int | None
    """None: of no piece of work, but a duty of the fleet."""
    category: str | None = None
    """That of the failure for which it is rescheduled."""


@dataclass(frozen=True, slots=True)
class CalledOff:
    """The store cancelled a job because somebody asked for it; where it runs, once that has ended."""

    job_id: UUID


@dataclass(frozen=True, slots=True)
class Ran:
    """A handler began: its effect is in the sink."""

    job_id: UUID
    lease_id: int
    tenant: str
    kind: str
    work: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A handler came to its end by itself, and without an error: the work of its lease is done."""

    job_id: UUID
    lease_id: int


# ---- processes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A process has a session."""

    session_id: UUID
    lease_s: float


@dataclass(frozen=True, slots=True)
class Beat:
    """The store took a sign of life."""

    session_id: UUID


@dataclass(frozen=True, slots=True)
class Closed:
    """A process gives its session up."""

    session_id: UUID


@dataclass(frozen=True, slots=True)
class DeclaredLost:
    """The store holds a session for dead, by its silence or (*proven*) by a proof."""

    session_id: UUID
    proven: bool


@dataclass(frozen=True, slots=True)
class Over:
    """A fault whose name begins so met a process, or all, no longer, whatever was to be."""

    fault: str


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault met a process, or all (NOBODY), until a moment: kill, freeze, cut, away, jump."""

    fault: str
    until: float


# ---- calls -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """A handler read an answer: whose data it asked for, and whose tag was in it."""

    asked: str
    told: str


@dataclass(frozen=True, slots=True)
class SimulatedAdmission:
    """How a call got in: when the gate judged it, which breaker it passed, and under which lease of a slot.

    *decides_s*: for how long it may keep others from deciding about that breaker. *alone*: by its process,
    which had nobody to ask.
    """

    at: float
    breaker: str
    slot: int | None
    decides_s: float
    alone: bool


@dataclass(frozen=True, slots=True)
class Arrived:
    """A call is at the upstream. *in_flight*: the numbers of all calls of the account there, with this one.

    *call* is one id for a call and its retries; *status* what it will be answered. *admission* None: no gate
    let it in.
    """

    number: int
    account: str
    call: str
    status: int
    in_flight: tuple[int, ...]
    admission: SimulatedAdmission | None


@dataclass(frozen=True, slots=True)
class Left:
    """It is over there; *how* as a wire tells it."""

    number: int
    account: str
    how: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The shared store gave a slot's lease its full time again."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotExpired:
    """The lease of a slot ended at *ended_s*: its holder, the process told of, had not given it back.

    It is told when somebody next looks at the slots. *slot*: the id of the lease.
    """

    key: str
    ended_s: float
    slot: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A call under the lease *slot* had no answer by its deadline, *given_s* after it was sent."""

    slot: int
    given_s: float


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """What the shared store was told of a call made it open a breaker for *for_s*."""

    breaker: str
    for_s: float


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    """What it was told made it close it."""

    breaker: str


Observed = (
    Enqueued | AskedAgain | Redriven | Claimed | Freed | Accepted | CalledOff | Ran | Returned
    | Opened | Beat | Closed | DeclaredLost | Struck | Over
    | Read | Arrived | Left | Kept | SlotExpired | TimedOut | BreakerOpened | BreakerClosed
)  # fmt: skip


class Entry(NamedTuple):
    """Something that was seen, when, and of which process."""

    at: float
    process: str
    seen: Observed


class Invariant(Protocol):
    """What must hold all the time, as a fold over what is seen."""

    name: str

    def see(self, entry: Entry) -> str | None:
        """Take it in; the breach in plain words where it is one."""
        ...


class Watch:
    """The journal of one run. *whose*: the process whose step it is. *strikes*: what faults really did, by
    their names."""

    def __init__(
        self, now: Callable[[], float], owner: Callable[[], str], strikes: Counter[str] | None = None
    ) -> None:
        self._whose = owner
        self.strikes: Counter[str] = Counter() if strikes is None else strikes
        self.now = now
        self.told: list[Entry] = []
        self.invariants: tuple[Invariant, ...] = ()
        self.broken: Broken | None = None

    def tell(self, observed: Observed, process: str | None = None) -> None:
        """Write it down and have each invariant see it. *process* None: whose step it is."""
        entry = Entry(self.now(), self._whose() if process is None else process, observed)
        self.told.append(entry)
        if self.broken is None:
            self.broken = first_breach([entry], self.invariants)

    def counts(self) -> dict[str, int]:
        """How often each kind of thing was told, by its name in small letters."""
        return dict(Counter(type(entry.seen).__name__.lower() for entry in self.told))


def first_breach(journal: Iterable[Entry], invariants: Iterable[Invariant]) -> Broken | None:
    """The first breach that *invariants* find in what is told, in its order."""
    watching = tuple(invariants)
    for entry in journal:
        for invariant in watching:
            why = invariant.see(entry)
            if why is not None:
                return Broken(invariant.name, entry.at, why)
    return None
