"""How long a killed process is felt: until its jobs and its refreshes are in other hands, or done.

A job is at work again when it runs elsewhere or has ended; one that was given back and still waits is not. A
refresh that was in flight is in other hands when its answer was found in the journal, when it was sent again,
or when it was judged: its outcome is unknown, and the replay policy of the provider says what follows. When
the last of them has really ended, with a new generation or with its customer, is measured apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from fairlead.assembly.runtime import Runtime
from fairlead.demo.demo_plan import ANSWER_S
from fairlead.demo.watch import Tell, everyone
from fairlead.engine.ports import ConnectionKey, Credential

LOOK_EVERY_S = 0.1
LONGEST_S = 40.0
BUSY_WITH = 3
BUSY_WITHIN_S = 3.0
JUST_S = 0.5 * ANSWER_S
LAST_COMMITS_S = 0.5
"""What a killed process had sent to the database may still commit; so long its rows are looked for."""


@dataclass(slots=True)
class Recovery:
    """What a killed process had in flight, and when that was in order again (seconds from the SIGKILL)."""

    session_id: UUID
    killed_s: float = 0.0
    seen: set[ConnectionKey] = field(default_factory=set)
    """Connections that it was refreshing, by the last look before the kill or any look after it."""
    jobs: int = 0
    sent: dict[ConnectionKey, int] = field(default_factory=dict)
    """Refreshes whose request may have left, by the generation they spent."""
    unsent: set[ConnectionKey] = field(default_factory=set)
    recovered_s: float | None = None
    settled_s: float | None = None

    @property
    def refreshes(self) -> int:
        """How many refreshes were in flight."""
        return len(self.sent) + len(self.unsent)

    async def wait_busy(self, runtime: Runtime) -> None:
        """Return in the middle of its work: when several requests have just left (after 3 s in any case)."""
        until_s = time.monotonic() + BUSY_WITHIN_S
        while time.monotonic() < until_s:
            owned = [each for each in await everyone(runtime) if self._owns(each)]
            self.seen = {each.connection.key for each in owned}
            if sum(_just_sent(each) for each in owned) >= BUSY_WITH:
                return
            await asyncio.sleep(0.01)

    async def follow(self, runtime: Runtime, tell: Tell) -> None:
        """Watch until all is settled, at most 40 s."""
        while self.settled_s is None and self._age_s() < LONGEST_S:
            found = await everyone(runtime)
            if self._age_s() < LAST_COMMITS_S:
                self._note(found)
            held = await self._held_jobs(runtime)
            if self.recovered_s is None and not held and self._in_other_hands(found):
                self.recovered_s = self._age_s()
                tell(
                    f"recovered: {self.jobs} jobs and {self.refreshes} refreshes of the killed worker are in "
                    f"other hands after {self.recovered_s:.1f} s"
                )
            if self.recovered_s is not None and self._settled(found):
                self.settled_s = self._age_s()
                tell(f"every refresh that it had in flight has ended, {self.settled_s:.1f} s after the kill")
            await asyncio.sleep(LOOK_EVERY_S)

    def _age_s(self) -> float:
        return time.monotonic() - self.killed_s

    def _note(self, found: Sequence[Credential]) -> None:
        """Remember what the dead process owns."""
        for each in filter(self._owns, found):
            key, rotation = each.connection.key, each.rotation
            if rotation is not None and rotation.phase == "intent" and rotation.age_sent_s is None:
                self.unsent.add(key)
            else:
                self.sent[key] = each.generation
                self.unsent.discard(key)
                self.seen.add(key)

    def _owns(self, each: Credential) -> bool:
        rotation = each.rotation
        return (
            rotation is not None
            and rotation.session_id == self.session_id
            and rotation.from_generation == each.generation
        )

    async def _held_jobs(self, runtime: Runtime) -> int:
        """Jobs that the dead process still holds, or that were given back and wait."""
        session = next(
            (each for each in await runtime.sessions.search() if each.session_id == self.session_id), None
        )
        held = session.running_jobs if session is not None else 0
        self.jobs = max(self.jobs, held)
        waiting = await runtime.jobs.search(
            state="available", kind=None, tenant_id=None, queue=None, limit=10_000
        )
        return held + sum(1 for job in waiting if job.crash_count > 0)

    def _in_other_hands(self, found: Sequence[Credential]) -> bool:
        return not any(
            self._owns(each) and each.rotation is not None and each.rotation.phase != "unknown"
            for each in found
        )

    def _settled(self, found: Sequence[Credential]) -> bool:
        """Whether each refresh that may have left has led to a new generation, or to its customer."""
        return all(
            each.generation > self.sent[each.connection.key] or each.state in ("needs_reauth", "revoked")
            for each in found
            if each.connection.key in self.sent
        )


def _just_sent(each: Credential) -> bool:
    age_s = None if each.rotation is None else each.rotation.age_sent_s
    return age_s is not None and age_s < JUST_S
