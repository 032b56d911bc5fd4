"""A runtime that is watched, and from which a safeguard can be taken: what the ablations run.

ttl_lock        a well-made lock with a time limit, in place of the rotation row
time_takeover   a refresh may be taken over by time even after its SENT mark
no_journal      answers are not written down before they are settled
unread_journal  they are, and nobody looks: else this is the second wall behind what is taken out
late_untold     who settles an answer is not told that its request left late
cut_is_nothing  a request whose answer was lost is taken for one that changed nothing
settle_once     an answer that the database does not take is given up
no_proof        death is never proven, only presumed when the lease has passed
no_rescue       nobody looks for the dead
no_meter        nobody measures how long the event loop stood still
no_lease_check  a result is written whoever holds the job by now; with _of_a_retry, _of_a_dead_letter or
                _of_a_cancel behind it that is written so
naive_retry     what is in doubt is done again, without looking what was done
...             support/careless.py has those of an outage
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast
from uuid import UUID, uuid4

from fairlead._core.ids import Ids
from fairlead.adapters.postgres import credentials as credentials_module
from fairlead.adapters.postgres import jobs as jobs_module
from fairlead.adapters.postgres import lanes as lanes_module
from fairlead.adapters.postgres import permits as permits_module
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.postgres_errors import CommitInDoubtError
from fairlead.adapters.postgres.statements import Statement
from fairlead.assembly.runtime import Roles, Runtime
from fairlead.engine.base.service import Service
from fairlead.engine.jobs.worker import Worker
from fairlead.engine.ports import (
    Claim,
    Credential,
    EndpointPermit,
    Enqueued,
    HttpResponse,
    Intent,
    JournalEntry,
    NewJob,
    SentMark,
    Settlement,
    UnknownOutcome,
)
from fairlead.engine.tokens.deps import RefreshDeps, RefreshSettings
from fairlead.errors import DependencyUnavailableError
from tests.faults.support.careless import Around as _Around
from tests.faults.support.careless import careless
from tests.faults.support.sink import Sink
from tests.support.rows import rows, run

TTL_LOCK_TABLE = "CREATE TABLE unsafe_lock (connection_id uuid PRIMARY KEY, owner uuid, until timestamptz)"
_PAUSE_S = 0.01
_SERVICES = {"no_rescue": "rescuer", "no_meter": "loop_meter"}
_JOINED = " AND job.lease_id = input.lease_id"
_LEASE_CHECKS = {
    "no_lease_check": ("job_complete", "lease_id = ANY(", "0 <> ALL("),
    "no_lease_check_of_a_retry": ("job_reschedule", _JOINED, ""),
    "no_lease_check_of_a_dead_letter": ("job_discard", _JOINED, ""),
    "no_lease_check_of_a_cancel": ("job_cancel_running", _JOINED, ""),
}


# ---- refreshing


class _TtlLock(_Around):
    """Waited for, looked at again inside, checked before the send, released by its owner only (F2)."""

    def __init__(self, inner: Any, database: Database) -> None:
        super().__init__(inner)
        self._database = database

    async def read_id(self, connection_id: UUID) -> Credential | None:
        credential = await self._inner.read_id(connection_id)
        return credential and replace(credential, rotation=None)

    async def claim(self, intent: Intent, ask: object) -> Claim | None:
        take = (
            "INSERT INTO unsafe_lock AS held VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')"
            " ON CONFLICT (connection_id) DO UPDATE SET owner = excluded.owner, until = excluded.until"
            " WHERE held.until < clock_timestamp()"
            " RETURNING (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS epoch"
        )
        while not (
            locked := await rows(
                self._database, take, intent.connection_id, intent.attempt_id, intent.lease_s
            )
        ):
            await asyncio.sleep(_PAUSE_S)
        now = await self._inner.read_id(intent.connection_id)
        if now is not None and now.generation == intent.from_generation:
            return Claim(int(locked[0]["epoch"]), EndpointPermit())
        await self.release(intent.connection_id, intent.attempt_id)
        return None

    async def mark_sent(self, connection_id: UUID, attempt_id: UUID) -> SentMark | None:
        ours = "SELECT now() FROM unsafe_lock WHERE connection_id = $1 AND owner = $2 AND until > now()"
        held_rows = await rows(self._database, ours, connection_id, attempt_id)
        return SentMark(held_rows[0]["now"], held_rows[0]["now"]) if held_rows else None

    async def settle(self, settlement: Settlement) -> str:
        verdict: str = await self._inner.settle(settlement)
        await self.release(settlement.connection_id, settlement.attempt_id)
        return verdict

    async def release(self, connection_id: UUID, attempt_id: UUID) -> bool:
        delete_lock = "DELETE FROM unsafe_lock WHERE connection_id = $1 AND owner = $2"
        await run(self._database, delete_lock, connection_id, attempt_id)
        return True


class _TimeTakeover(_Around):
    """Whoever holds a rotation whose lease has passed is presumed dead, and forgotten."""

    async def read_id(self, connection_id: UUID) -> Credential | None:
        credential: Credential | None = await self._inner.read_id(connection_id)
        if credential is not None and credential.rotation is not None and credential.rotation.expired:
            return replace(credential, rotation=None)
        return credential


class _LateUntold(_Around):
    async def send(self, *call: Any) -> Any:
        answer = await self._inner.send(*call)
        return replace(answer, late_s=0.0) if isinstance(answer, HttpResponse) else answer


class _CutIsNothing(_Around):
    async def mark_unknown(self, unknown: UnknownOutcome) -> bool:
        return bool(await self._inner.release(unknown.connection_id, unknown.attempt_id))


class _SettleOnce(_Around):
    async def settle(self, settlement: Settlement) -> str:
        try:
            return str(await self._inner.settle(settlement))
        except DependencyUnavailableError as away:
            raise RuntimeError("given up") from away


class _SettleAgain(_Around):
    """In doubt, it takes what stands for the generation that was spent."""

    async def settle(self, settlement: Settlement) -> str:
        while True:
            try:
                return str(await self._inner.settle(settlement))
            except CommitInDoubtError:
                await asyncio.sleep(_PAUSE_S)
                now = await self._inner.read_id(settlement.connection_id)
                settlement = replace(
                    settlement, from_generation=now.generation, expected_sealed=now.sealed, audit_id=uuid4()
                )


class _WatchedJournal(_Around):
    """Tells a ledger of the test when each answer was on disk."""

    def __init__(self, inner: Any, ledger: Sink) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def append(self, entry: JournalEntry) -> None:
        await self._inner.append(entry)
        self._ledger.write(connection=str(entry.connection_id), generation=entry.from_generation)


class _UnreadJournal(_Around):
    async def find(self, *args: object, **more: object) -> None:
        return None


class _NoJournal(_Around):
    async def append(self, entry: JournalEntry) -> None:
        return

    def settled(self, attempt_id: UUID, epoch: int) -> None:
        return


# ---- jobs


class _NaiveDatabase(_Around):
    """Does again what is in doubt."""

    async def resolve_doubt(
        self, work: Callable[[], Awaitable[Any]], in_doubt: object = None, within_s: float = 5.0
    ) -> Any:
        while True:
            try:
                return await work()
            except CommitInDoubtError:
                await asyncio.sleep(_PAUSE_S)


class _NaiveJobs(_Around):
    def __init__(self, inner: Any, ids: Ids) -> None:
        super().__init__(inner)
        self._ids = ids
        inner._database = inner._intake._database = _NaiveDatabase(inner._database)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        while True:
            try:
                return list(await self._inner._intake._store(jobs))
            except CommitInDoubtError:
                await asyncio.sleep(_PAUSE_S)
                jobs = [replace(job, job_id=self._ids.uuid7()) for job in jobs]


class _TimedClaims(_Around):
    """Tells a ledger of the test how long each look for work took."""

    def __init__(self, inner: Any, ledger: Sink) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def claim(self, *args: Any) -> list[Any]:
        began_s = time.monotonic()
        jobs: list[Any] = await self._inner.claim(*args)
        self._ledger.write(took_s=time.monotonic() - began_s, jobs=len(jobs))
        return jobs


class _NoProof(_Around):
    def is_dead(self, identity: object) -> bool:
        return False


def _alter(module: Any, name: str, old: str, new: str) -> None:
    """Have *module* run its statement *name* with *old* written as *new*; both must fit."""
    original = module.statement

    def altered(statement_name: str) -> Statement:
        sql: Statement = original(statement_name)
        if statement_name != name:
            return sql
        assert old in sql.text, f"{name} does not say {old!r} any more"
        return replace(sql, text=sql.text.replace(old, new))

    altered(name)
    module.statement = altered


class _Begun:
    """Beside the services of a runtime: they run, so its start is over."""

    name = "begun"

    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def run(self) -> None:
        self.event.set()

    def stop(self) -> None:
        """It has ended."""


class FaultRuntime(Runtime):
    """A Runtime as *order* wants it. `begun.event` is set once it is at work."""

    order: ClassVar[dict[str, Any]] = {}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.unsafe = frozenset(self.order.get("unsafe", ()))
        self.begun = _Begun()
        if "time_takeover" in self.unsafe:
            unsent, anyhow = "attempt.phase = 'intent' AND attempt.sent_at IS NULL\n", "true\n"
            _alter(permits_module, "endpoint_take", unsent, anyhow)
        if "floors_stay" in self.unsafe:
            _alter(lanes_module, "lane_raise_floors", "SELECT lane_raise_floors(false)", "SELECT NULL")
        if "naive_retry" in self.unsafe:  # a send counts as often as its answer is stored
            _alter(credentials_module, "credential_settle", " AND cr.settled_epoch < response.epoch", "")
        for name in self.unsafe & _LEASE_CHECKS.keys():
            _alter(jobs_module, *_LEASE_CHECKS[name])

    def _refresh_settings(self) -> RefreshSettings:
        """As ordered, even where no user may set it so: a lease that passes while a request is under way."""
        numbers = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.order["numbers"].items()
        }
        return replace(super()._refresh_settings(), **numbers)

    def _refresh_deps(self) -> RefreshDeps:
        deps = super()._refresh_deps()
        store: Any = deps.store
        journal: Any = _NoJournal(deps.journal) if "no_journal" in self.unsafe else deps.journal
        if "unread_journal" in self.unsafe:
            journal = _UnreadJournal(journal)
        if "ttl_lock" in self.unsafe:
            store = _TtlLock(store, self.database)
        if "time_takeover" in self.unsafe:
            store = _TimeTakeover(store)
        if "cut_is_nothing" in self.unsafe:
            store = _CutIsNothing(store)
        if "settle_once" in self.unsafe:
            store = _SettleOnce(store)
        if "naive_retry" in self.unsafe:
            store = _SettleAgain(store)
        if "late_untold" in self.unsafe:
            deps = replace(deps, transport=cast(Any, _LateUntold(deps.transport)))
        if "journaled" in self.order:
            journal = _WatchedJournal(journal, Sink(Path(self.order["journaled"])))
        return replace(deps, store=store, journal=journal)

    def _build_jobs(self, *args: Any) -> None:
        if "naive_retry" in self.unsafe:
            self.jobs = _NaiveJobs(self.jobs, self.ids)  # type: ignore[assignment]
        self.jobs = careless(self.jobs, self.unsafe)
        if "claims" in self.order:
            self.jobs = _TimedClaims(self.jobs, Sink(Path(self.order["claims"])))  # type: ignore[assignment]
        self.stores.jobs = self.jobs
        super()._build_jobs(*args)

    def _services(self, roles: Roles, worker: Worker | None) -> list[Service]:
        if "no_proof" in self.unsafe:
            self.processes = _NoProof(self.processes)  # type: ignore[assignment]
        services = super()._services(roles, worker)
        left_out = {name for sign, name in _SERVICES.items() if sign in self.unsafe}
        services_kept = [service for service in services if service.name not in left_out]
        return [*services_kept, cast(Service, self.begun)]
