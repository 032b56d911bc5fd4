"""Measure the recovery from a killed process: until other processes have taken over its jobs and refreshes.

A job is taken over when it runs elsewhere or has ended, not while it waits. A refresh in flight is taken over when
its response was found in the journal, when it was sent again, or when its outcome was marked unknown, so that the
provider's replay policy decides. A second figure is when the last of them has ended, with a new generation or with
a connection that needs its customer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from fairlead.assembly.runtime import Runtime
from fairlead.demo.demo_plan import RESPONSE_S
from fairlead.demo.watch import Report, read_credentials
from fairlead.engine.ports import ConnectionKey, Credential

POLL_S = 0.1
LONGEST_S = 40.0
BUSY_REFRESHES = 3
BUSY_WITHIN_S = 3.0
JUST_SENT_S = 0.5 * RESPONSE_S
LAST_COMMITS_S = 0.5
"""For so long, statements that the killed process had sent may still commit; its rows are read until then."""


@dataclass(slots=True)
class Recovery:
    """The jobs and refreshes of a killed process, and the seconds from the SIGKILL to their recovery."""

    session_id: UUID
    killed_mono: float = 0.0
    suspects: set[ConnectionKey] = field(default_factory=set)
    """Connections that it was refreshing in the last sample before the kill, or in one after it."""
    jobs: int = 0
    sent: dict[ConnectionKey, int] = field(default_factory=dict)
    """The generation of each refresh with a request that may have been sent."""
    unsent: set[ConnectionKey] = field(default_factory=set)
    has_sample: bool = False
    """Whether the rows of the killed process have been read."""
    recovered_s: float | None = None
    settled_s: float | None = None

    @property
    def in_flight(self) -> set[ConnectionKey]:
        """The connections with a refresh in flight at the kill."""
        return self.unsent | self.sent.keys()

    async def wait_busy(self, runtime: Runtime) -> None:
        """Return when several requests have just been sent, or after 3 s."""
        until_mono = time.monotonic() + BUSY_WITHIN_S
        while time.monotonic() < until_mono:
            owned = [credential for credential in await read_credentials(runtime) if self._owns(credential)]
            self.suspects = {credential.connection.key for credential in owned}
            if sum(_just_sent(credential) for credential in owned) >= BUSY_REFRESHES:
                return
            await asyncio.sleep(0.01)

    async def follow(self, runtime: Runtime, report: Report) -> None:
        """Poll until every refresh has ended, at most 40 s."""
        while self.settled_s is None and self._age_s() < LONGEST_S:
            credentials = await read_credentials(runtime)
            # the first sample counts however late it is: on a busy machine there is no other
            if not self.has_sample or self._age_s() < LAST_COMMITS_S:
                self._record(credentials)
            job_count = await self._count_jobs(runtime)
            if self.recovered_s is None and not job_count and self._is_taken_over(credentials):
                self.recovered_s = self._age_s()
                report(
                    f"recovered: other workers have taken over {self.jobs} jobs and {len(self.in_flight)} "
                    f"refreshes of the killed worker after {self.recovered_s:.1f} s"
                )
            if self.recovered_s is not None and self._is_settled(credentials):
                self.settled_s = self._age_s()
                report(
                    f"every refresh that it had in flight has ended, {self.settled_s:.1f} s after the kill"
                )
            await asyncio.sleep(POLL_S)

    def _age_s(self) -> float:
        return time.monotonic() - self.killed_mono

    def _record(self, credentials: Sequence[Credential]) -> None:
        """Record the refreshes that the killed process had in flight: not sent yet, or possibly sent."""
        self.has_sample = True
        for credential in filter(self._owns, credentials):
            key, rotation = credential.connection.key, credential.rotation
            if rotation is not None and rotation.phase == "intent" and rotation.age_sent_s is None:
                self.unsent.add(key)
            else:
                self.sent[key] = credential.generation
                self.unsent.discard(key)
                self.suspects.add(key)

    def _owns(self, credential: Credential) -> bool:
        rotation = credential.rotation
        return (
            rotation is not None
            and rotation.session_id == self.session_id
            and rotation.from_generation == credential.generation
        )

    async def _count_jobs(self, runtime: Runtime) -> int:
        """Return the number of jobs that the dead process still has, or that wait after a crash."""
        session = next(
            (view for view in await runtime.sessions.search() if view.session_id == self.session_id), None
        )
        running = session.running_jobs if session is not None else 0
        self.jobs = max(self.jobs, running)
        waiting = await runtime.jobs.search(
            state="available", kind=None, tenant_id=None, queue=None, limit=10_000
        )
        return running + sum(1 for job in waiting if job.crash_count > 0)

    def _is_taken_over(self, credentials: Sequence[Credential]) -> bool:
        return not any(
            self._owns(credential)
            and credential.rotation is not None
            and credential.rotation.phase != "unknown"
            for credential in credentials
        )

    def _is_settled(self, credentials: Sequence[Credential]) -> bool:
        """Return whether each request that may have been sent led to a new generation, or to its customer."""
        return all(
            credential.generation > self.sent[credential.connection.key]
            or credential.state in ("needs_reauth", "revoked")
            for credential in credentials
            if credential.connection.key in self.sent
        )


def _just_sent(credential: Credential) -> bool:
    age_s = None if credential.rotation is None else credential.rotation.age_sent_s
    return age_s is not None and age_s < JUST_SENT_S
