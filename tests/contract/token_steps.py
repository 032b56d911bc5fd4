"""What may happen to credentials and token endpoints, as data, and one side that it happens to.

Steps name connections, processes and refreshes by number, so that a history can be cut down and means the
same on every side. What a process does, it does by what it has read: a stale read is a step that is missing.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from fairlead.engine.ports import (
    ClaimFilter,
    Completed,
    ConnectionKey,
    Credential,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    Intent,
    Lifetime,
    NewCredential,
    NewJob,
    PermitRequest,
    ReauthRequirement,
    Sealed,
    SentMark,
    SettingsChange,
    Settlement,
    UnknownOutcome,
)
from fairlead.errors import InvalidInputError
from fairlead.policy.calls.blast_radius import NEVER_SENT, TOKEN
from fairlead.policy.jobs.lane import connection_group
from tests.contract.credential_steps import claim
from tests.contract.pairs import Pass, Step
from tests.contract.stores import Stores, discarded, identity
from tests.contract.token_names import Names

KEYS = (ConnectionKey("a", "xero"), ConnectionKey("a", "xero", "b2"), ConnectionKey("b", "shopify"))
LIFETIMES = (
    Lifetime(3600.0, 3000.0, 3500.0, 2900.0),
    Lifetime(60.0, 30.0, 45.0, 20.0),
    Lifetime(0.0, 0.0, 0.0, 0.0),
    Lifetime(None, None, None, None),
    Lifetime(30.0, None, None, 10.0),
)
YIELDS_S = (None, 20.0, math.inf)
ENDPOINTS = (
    EndpointKey("xero", "app"),
    EndpointKey("shopify", "app", "a.example"),
    EndpointKey("shopify", "app", "b.example", "account"),
)
REACHES = (
    *(TOKEN["unknown"], TOKEN["granted"], TOKEN["rejected.permanent_auth"], NEVER_SENT),
    *(TOKEN["not_processed.transient_rate_limit"], TOKEN["rejected.permanent_config.client"]),
    TOKEN["not_sent"],
)
LIMITS = (
    EndpointLimits(None, 1.0, breaker_failures=2, open_s=10.0, open_max_s=35.0, probe_s=20.0),
    EndpointLimits(0.5, 3.0, breaker_failures=3, open_s=10.0, open_max_s=35.0, probe_s=20.0),
)
WORK, REFRESH = "work", "token.refresh"


class Side(Names):
    """One implementation, and what its processes have read and asked. *start*: the first of its ids."""

    def __init__(self, stores: Stores, start: int) -> None:
        super().__init__(start)
        self._stores = stores
        self._store = stores.credentials
        self._sessions: dict[int, UUID] = {}
        self._read: dict[tuple[int, int], Credential] = {}
        self._wishes: dict[int, tuple[Intent, Credential]] = {}
        self._granted: dict[int, int] = {}
        self._marks: dict[int, SentMark] = {}
        self._permits: dict[int, tuple[PermitRequest, EndpointPermit]] = {}

    async def take(self, step: Step) -> object:
        """What comes of *step*; the same on every side."""
        if isinstance(step, Pass):
            return await self._stores.pass_time(step.seconds)
        act: Callable[..., Awaitable[object]] = getattr(self, step.act)
        try:
            return self.shown(await act(*step.args))
        except InvalidInputError:
            return "refused"

    async def glance(self) -> object:
        """What most steps change."""
        credentials = await self._store.search(tenant=None, provider=None, state=None, limit=100)
        return self.shown([credentials, await self._stores.endpoints.search()])

    async def state(self) -> object:
        """All that is stored beside that, as far as anybody can see it."""
        entries = await self._stores.dead_letters.search(
            status=None, category=None, tenant_id=None, kind=None, limit=1000
        )
        pauses = sorted(await self._stores.lanes.pauses(100), key=lambda pause: str(pause.scope))
        return self.shown(
            [
                await self._store.counts(),
                [
                    (
                        letter.kind,
                        letter.status,
                        letter.code,
                        letter.resolution,
                        letter.resolved_by,
                        letter.resolution_reason,
                        letter.age_s,
                    )
                    for letter in entries
                ],
                [(pause.scope, pause.until, pause.reason, pause.by, pause.since) for pause in pauses],
                sorted(await self._stores.trail(), key=lambda record: record.audit_id),
            ]
        )

    # ---- processes -----------------------------------------------------------------------------

    async def begin(self, process: int) -> None:
        self._sessions[process] = session_id = self.id("session")
        await self._stores.sessions.open(session_id, identity(process), 1e9, "1.0")

    async def end(self, process: int, lost: bool) -> object:
        session_id = self._session(process)
        if lost:
            return await self._stores.sessions.mark_dead([session_id])
        return await self._stores.sessions.close(session_id)

    def _session(self, process: int) -> UUID:
        return self._sessions.get(process) or UUID(int=process)  # nobody knows that one

    async def read(self, process: int, connection: int) -> object:
        credential = await self._store.read(KEYS[connection])
        if credential is None:
            self._read.pop((process, connection), None)
            return None
        self._read[process, connection] = credential
        by_id = await self._store.read_id(credential.connection.connection_id)
        return credential if by_id == credential else [credential, by_id]

    # ---- grants --------------------------------------------------------------------------------

    def _grant(self, connection: int, lifetime: int, number: int) -> NewCredential:
        return NewCredential(
            connection_id=self.id("connection"),
            key=KEYS[connection],
            variant=None if number % 2 else "eu",
            account_id=None if number % 3 else f"account {number}",
            client_id=f"app {number % 2}",
            endpoint={"shop": str(number)},
            settings={"calls": number},
            sealed=Sealed(self.id("key"), b"%d" % number),
            generation=1,
            refreshable=number % 5 > 0,
            lifetime=LIFETIMES[lifetime],
            actor="ann",
            audit_id=self.id("audit"),
        )

    async def create(self, connection: int, lifetime: int, number: int) -> object:
        return await self._store.create(self._grant(connection, lifetime, number))

    async def replace(self, process: int, connection: int, lifetime: int, number: int) -> object:
        credential = self._read.get((process, connection))
        if credential is None:
            return None
        new = self._grant(connection, lifetime, number)
        connection_id, generation = credential.connection.connection_id, credential.generation + 1
        return await self._store.replace(replace(new, connection_id=connection_id, generation=generation))

    async def configure(self, process: int, connection: int, number: int) -> object:
        credential = self._read.get((process, connection))
        if credential is None:
            return None
        change = SettingsChange(credential.connection, {"rate": number})
        return await self._store.configure(change, actor="ann", audit_id=self.id("audit"))

    async def revoke(self, process: int, connection: int) -> object:
        credential = self._read.get((process, connection))
        if credential is None:
            return None
        of = credential.connection
        return await self._store.revoke(
            of.connection_id, of.key.tenant, actor="ann", reason="left", audit_id=self.id("audit")
        )

    async def remove(self, process: int, connection: int) -> object:
        credential = self._read.get((process, connection))
        if credential is None:
            return None
        of = credential.connection
        return await self._store.remove(
            of.connection_id, of.key.tenant, actor="ann", audit_id=self.id("audit")
        )

    async def postpone(self, process: int, connection: int, due_in_s: float | None) -> object:
        credential = self._read.get((process, connection))
        if credential is None:
            return None
        return await self._store.postpone(
            credential.connection.connection_id, credential.generation, due_in_s
        )

    # ---- refreshes -----------------------------------------------------------------------------

    async def claim(self, refresh: int, process: int, connection: int, lease_s: float, again: bool) -> object:
        """*again*: to send once more what was sent with unknown outcome."""
        credential = self._read.get((process, connection))
        if credential is None:
            return None
        connection_id, attempt_id = credential.connection.connection_id, self.id("rotation")
        intent = Intent(connection_id, attempt_id, credential.generation, self._session(process), lease_s)
        self._wishes[refresh] = (intent, credential)
        replays = credential.rotation.replays if credential.rotation else 0
        granted = await (self._store.claim_replay(intent, replays) if again else claim(self._store, intent))
        if granted is not None:
            self._granted[refresh] = granted
        return granted

    async def ask_again(self, refresh: int) -> object:
        """The answer to a claim was lost."""
        if refresh not in self._wishes:
            return None
        granted = await claim(self._store, self._wishes[refresh][0])
        if granted is not None:
            self._granted[refresh] = granted
        return granted

    async def send(self, refresh: int) -> object:
        if refresh not in self._wishes:
            return None
        intent, _ = self._wishes[refresh]
        mark = await self._store.mark_sent(intent.connection_id, intent.attempt_id)
        if mark is not None:
            self._marks[refresh] = mark
        return mark

    async def late(self, refresh: int, late_s: float) -> object:
        """It leaves so long after its mark."""
        if refresh not in self._marks:
            return None
        intent, _ = self._wishes[refresh]
        left_at = self._marks[refresh].at + timedelta(seconds=late_s)
        epoch = await self._store.mark_late(intent.connection_id, intent.from_generation, left_at)
        if epoch is not None:
            self._granted[refresh] = epoch
        return {"epoch": epoch}

    async def release(self, refresh: int) -> object:
        if refresh not in self._wishes:
            return None
        intent, _ = self._wishes[refresh]
        return await self._store.release(intent.connection_id, intent.attempt_id)

    async def settle(self, refresh: int, lifetime: int, number: int) -> object:
        if refresh not in self._marks:  # nobody answers what was never sent
            return None
        intent, _ = self._wishes[refresh]
        return await self._store.settle(
            Settlement(
                connection_id=intent.connection_id,
                attempt_id=intent.attempt_id,
                from_generation=intent.from_generation,
                epoch=self._granted[refresh],
                sealed=Sealed(self.id("key"), b"answer %d" % number),
                refreshable=number % 5 > 0,
                account_id=None if number % 3 else f"account {number}",
                sent_at=self._marks[refresh].first_at,
                lifetime=LIFETIMES[lifetime],
                actor="fairlead",
                audit_id=self.id("audit"),
                defer_s=YIELDS_S[number % len(YIELDS_S)],
            )
        )

    async def lose(self, refresh: int, due_in_s: float | None) -> object:
        if refresh not in self._wishes:
            return None
        intent, _ = self._wishes[refresh]
        return await self._store.mark_unknown(
            UnknownOutcome(
                intent.connection_id, intent.attempt_id, f"cut {refresh}", due_in_s, self.id("audit")
            )
        )

    async def require_reauth(self, refresh: int, in_flight: bool) -> object:
        """*in_flight*: by who holds the refresh; else by who believes that nobody does."""
        if refresh not in self._wishes:
            return None
        intent, credential = self._wishes[refresh]
        return await self._store.require_reauth(
            ReauthRequirement(
                connection_id=intent.connection_id,
                from_generation=credential.generation,
                attempt_id=intent.attempt_id if in_flight else None,
                reason="invalid_grant",
                notice_id=self.id("notice"),
                notice_args={"refresh": refresh},
                audit_id=self.id("audit"),
            )
        )

    # ---- scans and work ------------------------------------------------------------------------

    async def due(self, urgent_only: bool, cool_down_s: float, limit: int) -> object:
        pages, cursor = [], None
        while True:
            page = await self._store.due(
                urgent_only=urgent_only, cool_down_s=cool_down_s, cursor=cursor, limit=limit
            )
            pages.append(page)
            cursor = page.next_cursor
            if cursor is None:
                return pages

    async def left_behind(self, limit: int, cool_down_s: float) -> object:
        due_connections = await self._store.left_behind(limit, cool_down_s)
        return (
            len(due_connections)
            if len(due_connections) == limit
            else sorted(due_connections, key=lambda due: due.key)
        )

    async def enqueue(self, connection: int, delay_s: float) -> object:
        tenant, provider, account = KEYS[connection]
        group = connection_group(provider, account)
        job = NewJob(self.id("job"), WORK, tenant, provider=provider, group_key=group, delay_s=delay_s)
        return [stored.inserted for stored in await self._stores.jobs.enqueue([job])]

    async def work(self) -> object:
        """All that may run is run; what did."""
        session_id = self.id("session")
        await self._stores.sessions.open(session_id, identity(99), 1e9, "1.0")
        done: list[Any] = []
        while jobs := await self._stores.jobs.claim(ClaimFilter(kinds=(WORK,)), 9, session_id):
            done += [self.shown(job.job_id) for job in jobs]
            await self._stores.jobs.acknowledge([Completed(job.job_id, job.lease_id) for job in jobs])
        return sorted(done)

    async def notices(self) -> object:
        jobs = await self._stores.jobs.search(
            state=None, kind="event.needs_reauth", tenant_id=None, queue=None, limit=1000
        )
        return sorted(
            [self.shown(job.job_id), job.state, job.group_key, job.unique_key, job.priority, job.provider]
            for job in [replace(job, group_key="", unique_key="") for job in jobs]
        )

    async def refresh_dies(self, process: int, connection: int) -> object:
        """A job that was to refresh it is given up."""
        credential = self._read.get((process, connection))
        if credential is None:
            return None
        session_id, (tenant, provider, _) = self.id("session"), KEYS[connection]
        await self._stores.sessions.open(session_id, identity(98), 1e9, "1.0")
        await self._stores.jobs.enqueue([NewJob(self.id("job"), REFRESH, tenant, provider=provider)])
        jobs = await self._stores.jobs.claim(ClaimFilter(kinds=(REFRESH,)), 9, session_id)
        dead = [
            replace(
                discarded(job),
                dead_letter_id=self.id("entry"),
                connection_id=credential.connection.connection_id,
            )
            for job in jobs
        ]
        return len(await self._stores.jobs.acknowledge(dead))

    # ---- token endpoints -----------------------------------------------------------------------

    async def admit(
        self, number: int, endpoint: int, limits: int, secret: str | None, process: int
    ) -> object:
        credential = self._read.get((0, process))
        of = credential.connection.connection_id if credential else UUID(int=process)
        ask = PermitRequest(ENDPOINTS[endpoint], LIMITS[limits], of, 1, secret, UUID(int=number % 3))
        answer = await self._stores.endpoints.admit(ask)
        if isinstance(answer, EndpointPermit):
            self._permits[number] = ask, answer
        return answer

    async def record(self, number: int, reach: int, hint_s: float) -> object:
        permit = self._permits.pop(number, None)
        return permit and await self._stores.endpoints.record(*permit, REACHES[reach], str(number), hint_s)

    async def forget(self, endpoint: int, older_than_s: float) -> object:
        gate = self._stores.endpoints
        return await gate.prune(older_than_s), await gate.resume(ENDPOINTS[endpoint])
