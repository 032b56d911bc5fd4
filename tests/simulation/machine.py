"""What a simulated process has of its machine: a clock that goes a little wrong, a proof of death.

The small stores that have no twin in memory elsewhere (notes and switches of the gate) stand here, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random

from fairlead._core.secret import Secret
from fairlead.engine.ports import Connection, ConnectionKey, LearnedLimit, Override, ProcessIdentity
from fairlead.engine.tokens.deps import AppCredential
from fairlead.errors import ProviderNotFoundError
from fairlead.policy.providers.profile import Profile
from fairlead.testing._memory.database import MemoryLink, MemoryStore, statement
from tests.simulation.loop import SimLoop
from tests.simulation.process import SimProcess
from tests.simulation.providers import PROFILES
from tests.support.memory_grants import credential_view

WRONG = 2e-4
"""By what share a clock goes too fast or too slow at most: 0.2 ms a second."""
OFF_S = 60.0
"""How far off a machine's time of day is at most when a seed begins."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class SimClock:
    """The clock of one process: its own zero, its own pace. *wall_s* is how far its time of day is off.

    That is the machine's, of which *machine* draws it: off from the first day, and going wrong.
    """

    def __init__(self, loop: SimLoop, zero_s: float, pace: float, machine: Random) -> None:
        self._loop = loop
        self._zero_s = zero_s
        self._pace = pace
        self.wall_s = machine.uniform(-OFF_S, OFF_S)
        self._drift = machine.uniform(-WRONG, WRONG)

    def monotonic(self) -> float:
        """Seconds of this process."""
        return self._zero_s + self._loop.time() * self._pace

    def epoch_s(self) -> float:
        """Its time of day."""
        return EPOCH + self._loop.time() * (1 + self._drift) + self.wall_s

    async def sleep(self, delay_s: float) -> None:
        """As the port says."""
        await asyncio.sleep(delay_s / self._pace)

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """As the port says."""
        return self._loop.call_later(delay_s / self._pace, act).cancel


class WorldClock:
    """The database's clock."""

    def __init__(self, loop: SimLoop) -> None:
        self.monotonic = loop.time

    async def sleep(self, delay_s: float) -> None:
        """Nobody sleeps in the database."""
        raise NotImplementedError

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """Nor waits."""
        raise NotImplementedError


class SimProbe:
    """Proves deaths on the own host, as the process table does."""

    def __init__(self, process: SimProcess, lives: Callable[[], Sequence[SimProcess]]) -> None:
        self._process = process
        self._lives = lives

    def identity(self) -> ProcessIdentity:
        """Of this process."""
        return self._process.identity()

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """With proof only: it was on this host, and is not any more."""
        if identity.host != self._process.host:
            return False
        return any(life.dead and life.identity() == identity for life in self._lives())


class SimNotes(MemoryStore):
    """Notes of the gate; see ``fairlead.engine.ports.gate_notes``. What was learnt is of no use in a seed."""

    def __init__(self, link: MemoryLink, started: set[str]) -> None:
        super().__init__(link)
        self._started = started

    @statement
    def connection(self, key: ConnectionKey) -> Connection | None:
        """As the port says."""
        for row in self.database.tokens.credentials.values():
            if row.key == key:
                return credential_view(self.database, row).connection
        return None

    @statement
    def save(self, limits: Sequence[LearnedLimit]) -> None:
        """Forgotten at once."""

    @statement
    def record_first_use(self, prefix: str) -> bool:
        """As the port says."""
        first = prefix not in self._started
        self._started.add(prefix)
        return first


class NoSwitches:
    """Nobody switches anything by hand."""

    async def search(self) -> Sequence[Override]:
        """None."""
        return ()


class OneApp:
    """The same app for all."""

    def app(self, provider: str, client_id: str) -> AppCredential:
        """As the port says."""
        return AppCredential("app", Secret("app-secret"), fingerprint="f1")


class SimProfiles:
    """The vendors of the world."""

    def profile(self, provider: str, variant: str | None) -> Profile:
        """As the port says."""
        if provider not in PROFILES:
            raise ProviderNotFoundError("there is no profile of this name", provider=provider)
        return PROFILES[provider]
