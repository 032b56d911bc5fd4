"""Random histories of credentials: memory and PostgreSQL tell the same, step by step, on one clock.

    python -m tests.contract.token_histories 10000        more than a test has; exit 1 where one differs

A history is data, so it can be cut down and told (as tests/contract/histories.py does it for the gate).
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from tests.contract.losses import LossyDatabase
from tests.contract.pairs import Do, Histories, Look, Pass, Step, run_many
from tests.contract.stores import MemoryStores
from tests.contract.token_steps import ENDPOINTS, KEYS, LIFETIMES, LIMITS, REACHES, Side
from tests.support.memory_credentials import MemoryCredentialStore
from tests.support.memory_endpoints import MemoryEndpointGate

STEPS = 60
PROCESSES = 3
RECENT = 4
"""Of so many latest refreshes one is taken up again."""
PAUSES_S = (0.000_001, 0.5, 5.0, 10.0, 20.0, 45.0, 100.0, 3000.0)
QUIET = ("begin", "read", "due", "left_behind", "notices")
"""Acts that change nothing which a credential shows by itself."""
LOOK_EACH = 10
"""Steps after which all is compared that is stored; what most steps change is compared after each."""


# ---- what happens ----------------------------------------------------------------------------------


class Draft:
    """A history as it is drawn. Steps that mean nothing in their place are wasted: most mean something."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._numbers = itertools.count(1)
        self._recent: deque[int] = deque(maxlen=RECENT)
        self.steps: list[Step] = []

    def begin(self) -> None:
        """Processes that know each connection."""
        for process in range(PROCESSES):
            self._do("begin", process)
        for connection in range(len(KEYS)):
            self._do("create", connection, self._lifetime(), next(self._numbers))
            for process in range(PROCESSES):
                self._do("read", process, connection)

    def refresh(self) -> None:
        """As it should go, up to some point."""
        session_key, number = self._who(), next(self._numbers)
        if self._draw.random() < 0.8:
            self._do("read", *session_key)
        lease_s = self._draw.choice([0.0, 10.0, 60.0, 1e6])
        self._do("claim", number, *session_key, lease_s, self._draw.random() < 0.3)
        self._recent.append(number)
        if self._draw.random() < 0.75:
            self._do("send", number)
            if self._draw.random() < 0.5:
                self._end(number)

    def follow_up(self) -> None:
        """Something about a refresh that is under way, or was."""
        if not self._recent:
            return
        number = self._draw.choice(self._recent)
        kind = self._draw.random()
        if kind < 0.25:
            self._do("send" if kind < 0.15 else "ask_again", number)
        elif kind < 0.35:
            self._do("late", number, self._draw.choice([0.0, 1.0, 10.0, 40.0, 1e4]))
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        draw = self._draw
        [act] = draw.choices(["settle", "lose", "release", "require_reauth"], [30, 30, 20, 20])
        match act:
            case "settle":
                self._do(act, number, self._lifetime(), draw.randrange(30))
            case "lose":
                self._do(act, number, draw.choice([None, 0.0, 5.0, 30.0]))
            case "require_reauth":
                self._do(act, number, draw.random() < 0.7)
            case _:
                self._do(act, number)

    def person(self) -> None:
        """A new grant, other settings, an end."""
        draw, session_key = self._draw, self._who()
        [act] = draw.choices(["replace", "configure", "postpone", "revoke", "remove"], [8, 3, 3, 1, 1])
        if draw.random() < 0.7:
            self._do("read", *session_key)
        match act:
            case "replace":
                self._do(act, *session_key, self._lifetime(), next(self._numbers))
            case "configure":
                self._do(act, *session_key, next(self._numbers))
            case "postpone":
                self._do(act, *session_key, draw.choice([None, 0.0, 15.0]))
            case _:
                self._do(act, *session_key)

    def create(self) -> None:
        """One that is gone comes back, or is there already."""
        process, connection = self._who()
        self._do("create", connection, self._lifetime(), next(self._numbers))
        self._do("read", process, connection)

    def process(self) -> None:
        """One ends, and what it left is looked for; mostly another begins."""
        process = self._draw.randrange(PROCESSES)
        self._do("end", process, self._draw.random() < 0.5)
        if self._draw.random() < 0.5:
            self._do("left_behind", 9, 0.0)
        if self._draw.random() < 0.7:
            self._do("begin", process)

    def scan(self) -> None:
        """Somebody looks for what there is to do."""
        draw = self._draw
        match draw.randrange(3):
            case 0:
                cool_down_s = draw.choice([0.0, 10.0, 1000.0])
                self._do("due", draw.random() < 0.3, cool_down_s, draw.choice([1, 2, 9]))
            case 1:
                self._do("left_behind", draw.choice([1, 9]), draw.choice([0.0, 900.0]))
            case 2:
                self._do("notices")

    def work(self) -> None:
        """Other work of a connection comes, or is run."""
        if self._draw.random() < 0.4:
            self._do("work")
        else:
            self._do("enqueue", self._who()[1], self._draw.choice([0.0, 0.0, 5.0]))

    def death(self) -> None:
        """Of a job that was to refresh."""
        self._do("refresh_dies", *self._who())

    def endpoint(self) -> None:
        """One is asked, and tells how it is."""
        draw, number = self._draw, next(self._numbers)
        endpoint = draw.randrange(len(ENDPOINTS))
        kind = draw.random()
        if kind < 0.94:
            limits, secret = draw.randrange(len(LIMITS)), draw.choice(["f", "f", "g", None])
            self._do("admit", number, endpoint, limits, secret, draw.randrange(len(KEYS)))
            self._recent.append(number)
            reach = draw.choice([0, 0, *range(len(REACHES))])
            self._do("record", draw.choice(self._recent), reach, draw.choice([0.0, 3.0, 60.0]))
        else:
            self._do("forget", endpoint, draw.choice([20.0, 100.0, 1e9]))

    def time(self) -> None:
        """It passes."""
        self.steps.append(Pass(self._draw.choice(PAUSES_S)))

    def _do(self, act: str, *args: object) -> None:
        self.steps.append(Do(act, args))

    def _who(self) -> tuple[int, int]:
        """A process and a connection; one of these is busier than the others."""
        return self._draw.randrange(PROCESSES), self._draw.choice([0, 0, 0, 1, 2])

    def _lifetime(self) -> int:
        return self._draw.randrange(len(LIFETIMES))


_ACTS: dict[Callable[[Draft], None], int] = {
    Draft.refresh: 30,
    Draft.follow_up: 30,
    Draft.person: 8,
    Draft.create: 2,
    Draft.process: 6,
    Draft.scan: 6,
    Draft.work: 6,
    Draft.death: 1,
    Draft.time: 14,
}
_ENDPOINT_ACTS: dict[Callable[[Draft], None], int] = {Draft.endpoint: 3, Draft.time: 1}


def history(draw: Random, steps: int = STEPS) -> list[Step]:
    """*steps* steps about credentials or, one in six, about token endpoints."""
    draft = Draft(draw)
    acts = _ENDPOINT_ACTS if draw.random() < 1 / 6 else _ACTS
    if acts is _ACTS:
        draft.begin()
    while len(draft.steps) < steps:
        [act] = draw.choices(list(acts), list(acts.values()))
        act(draft)
    return draft.steps[:steps]


# ---- two sides -------------------------------------------------------------------------------------


class Pair(Histories[Side]):
    """Credentials and token endpoints in memory, and those of a database whose clock stands still."""

    def __init__(
        self,
        database: LossyDatabase,
        credentials: type[MemoryCredentialStore] = MemoryCredentialStore,
        endpoints: type[MemoryEndpointGate] = MemoryEndpointGate,
    ) -> None:
        super().__init__(database)
        self._made = credentials, endpoints

    def history(self, draw: Random) -> list[Step]:
        return history(draw)

    async def sides(self, start: int) -> tuple[Side, Side]:
        return Side(self._memory(), start), Side(self.real, start)

    def looks(self, number: int, step: Step, *, last: bool) -> Iterator[Look[Side]]:
        if not isinstance(step, Pass) and step.act not in QUIET:
            yield Side.glance
        if number % LOOK_EACH == 0 or last:
            yield Side.state

    def _memory(self) -> MemoryStores:
        stores, (credentials, endpoints) = self.memory(), self._made
        link = stores.credentials.link
        return replace(stores, credentials=credentials(link), endpoints=endpoints(link))


if __name__ == "__main__":
    sys.exit(run_many(Pair, int(sys.argv[1])))
