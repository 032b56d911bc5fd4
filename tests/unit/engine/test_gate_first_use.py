"""Who may say that nothing was ever granted, and for how long (R23)."""

from __future__ import annotations

import pytest

from fairlead.engine.limits.first_use import FirstUse
from fairlead.errors import DependencyUnavailableError
from fairlead.testing._kit.clock import ManualClock


class Notes:
    """Remembers prefixes. *away*: it does not answer. *slow_s*: how long an answer takes."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.known: set[str] = set()
        self.away = False
        self.slow_s = 0.0

    async def record_first_use(self, prefix: str) -> bool:
        if self.away:
            raise DependencyUnavailableError("the database is away")
        first = prefix not in self.known
        self.known.add(prefix)
        await self.clock.advance(self.slow_s)
        return first


@pytest.fixture
def notes() -> Notes:
    return Notes(ManualClock(start=1000.0))


def process(notes: Notes, prefix: str = "fairlead") -> FirstUse:
    return FirstUse(notes, prefix, clock=notes.clock, lease_s=30.0)  # type: ignore[arg-type]


async def test_the_first_process_ever_is_new_and_no_other(notes: Notes) -> None:
    first, second = process(notes), process(notes)
    assert not first.is_new(), "nothing is claimed before it was noted"
    await first.begin()
    await second.begin()
    assert (first.is_new(), second.is_new()) == (True, False)


async def test_process_that_died_before_its_first_call_leaves_no_new_installation(notes: Notes) -> None:
    await process(notes).begin()
    after_the_crash = process(notes)
    await after_the_crash.begin()
    assert not after_the_crash.is_new()


async def test_installation_counts_as_new_for_one_lease(notes: Notes) -> None:
    """Later another process, which waited for a lease on an empty server, may have granted slots."""
    first = process(notes)
    notes.slow_s = 29.0
    await first.begin()
    assert first.is_new()
    await notes.clock.advance(1.0)
    assert not first.is_new()


async def test_an_answer_that_took_a_lease_is_worth_nothing(notes: Notes) -> None:
    first = process(notes)
    notes.slow_s = 30.0
    await first.begin()
    assert not first.is_new()


async def test_without_an_answer_of_the_database_nothing_begins(notes: Notes) -> None:
    notes.away = True
    first = process(notes)
    with pytest.raises(DependencyUnavailableError):
        await first.begin()
    assert not first.is_new()


async def test_another_prefix_is_another_installation(notes: Notes) -> None:
    await process(notes).begin()
    other = process(notes, "other")
    await other.begin()
    assert other.is_new()
