"""Askers of the stores on PostgreSQL, several tenants over few connections, who may leave at any moment.

What a tenant has is tagged as its own, so a row that went to another's question shows, and so does one's own
that a wall raised for somebody else hides.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.connection_checkout import ConnectionCheckout
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.ports import ConnectionKey, Credential, Enqueued, NewJob, Sealed
from tests.contract.credential_steps import FOR_EVER, new_credential
from tests.faults.support.report import Figures
from tests.support.engine import NOBODY, new_job
from tests.support.rows import run

ASKERS = 48
CANCELLED = 0.3
DELAY_S = 0.002
"""The most that the wire holds up what is said, in each direction."""
IN_LINE_S = 0.04  # about as long as an ask takes, most of it in line
LOOKED_AT = 0.25  # of the connections that are lent
TENANTS = tuple(f"tenant-{number}" for number in range(8))
PROVIDER, KIND = "shopify", "storm"
PARTS = 5
ROUND_TRIPS = {"read": 0, "search": 4, "get": 1, "enqueue": 1, "stream": 5}
"""What is asked, and how often it goes to the server and back on the connection of the one who asks.

A read has none of its own: it is one of a batch. A search goes behind the wall, a stream is a transaction.
"""
SESSION_STATE = "SELECT current_setting('role'), coalesce(current_setting('fairlead.tenants', true), '')"
GENERATION = "UPDATE credential SET generation = $2 WHERE tenant_id = $1"
_ids = SystemIds()


def _tags(tenant: str) -> tuple[str, str, int, bytes]:
    """What the credential of *tenant* is known by, and no other's."""
    return tenant, f"account of {tenant}", 100 + TENANTS.index(tenant), f"sealed for {tenant}".encode()


def _tags_of(credential: Credential) -> tuple[str, str | None, int, bytes]:
    connection = credential.connection
    return connection.key.tenant, connection.account_id, credential.generation, credential.sealed.blob


async def keeps(connection: DatabaseConnection) -> bool:
    """Whether *connection* still knows a tenant, or a role that is not its own."""
    return tuple((await connection.fetch(SESSION_STATE))[0].values()) != ("none", "")


class Watched(ConnectionCheckout):
    """Has callers leave with a connection in their hands, and looks at what is lent.

    ``told`` counts who was cancelled with one (``cancelled``), connections lent in a transaction
    (``in_transaction``), those looked at (``looked_at``) and those that knew a tenant (``keeps``).
    """

    def __init__(self, database: Database, draw: Random) -> None:
        settings = database.settings
        super().__init__(database._pool, settings.acquire_timeout_s, settings.connect_timeout_s)
        self._draw = draw
        self.leaves_after_s: dict[asyncio.Task[Any], float] = {}
        self.told: Counter[str] = Counter()

    @asynccontextmanager
    async def checkout(self, *, urgent: bool = False) -> AsyncIterator[DatabaseConnection]:
        async with super().checkout(urgent=urgent) as connection:
            try:
                await self._look(connection)
                yield connection
            except asyncio.CancelledError:
                self.told["cancelled"] += 1
                raise

    async def _look(self, connection: DatabaseConnection) -> None:
        if cast(Any, connection).is_in_transaction():
            self.told["in_transaction"] += 1
        elif self._draw.random() < LOOKED_AT:
            self.told["looked_at"] += 1
            self.told["keeps"] += await keeps(connection)
        asking = asyncio.current_task()
        if asking is not None and asking in self.leaves_after_s:
            asyncio.get_running_loop().call_later(self.leaves_after_s.pop(asking), asking.cancel)


@dataclass
class Ledger:
    """Jobs that tenants asked to have stored."""

    asked: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By ask: whose it was, and of how many jobs."""
    accepted: list[int] = field(default_factory=list)
    jobs: dict[str, list[NewJob]] = field(default_factory=lambda: defaultdict(list))
    """By tenant: what was accepted."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def ask(self, tenant: str, parts: int) -> tuple[int, list[NewJob]]:
        """A new ask for *parts* jobs."""
        ask = next(self._numbers)
        self.asked[ask] = (tenant, parts)
        tags = ({"tenant": tenant, "ask": ask, "part": part} for part in range(parts))
        return ask, [new_job(KIND, job_id=_ids.uuid7(), tenant_id=tenant, args=args) for args in tags]

    def accept(self, ask: int, jobs: list[NewJob]) -> None:
        """It was told as stored."""
        self.accepted.append(ask)
        self.jobs[self.asked[ask][0]] += jobs

    def judge(
        self, stored: list[dict[str, Any]], writes: Figures, accepted: Figures, streams: Figures
    ) -> None:
        """What was accepted is there, all of it once and its tenant's; of the others all or nothing is.

        *stored*: of each job of `KIND` its tenant_id, and the ``tenant``, ``ask`` and ``part`` in its args.
        """
        counts_by_kind: dict[int, Counter[int]] = defaultdict(Counter)
        foreign = 0
        for row in stored:
            counts_by_kind[row["ask"]][row["part"]] += 1
            foreign += not row["tenant_id"] == row["tenant"] == self.asked[row["ask"]][0]
        doubled = sum(times > 1 for parts in counts_by_kind.values() for times in parts.values())
        writes.note(n=len(self.asked), stored=len(stored))
        writes.zero(doubled=doubled, foreign_rows=foreign)
        accepted.note(n=len(self.accepted))
        accepted.zero(lost=sum(len(counts_by_kind[ask]) < self.asked[ask][1] for ask in self.accepted))
        several = {ask: parts for ask, (_, parts) in self.asked.items() if parts > 1}
        streams.note(n=len(several))
        streams.zero(torn=sum(0 < len(counts_by_kind[ask]) < parts for ask, parts in several.items()))


class Storm:
    """Askers of the stores over the pool of *database*, which it closes.

    ``told`` counts answers by what was asked, ``wrong`` ones among them, ``cancelled`` asks, and errors by
    their type; ``CancelledError`` is an ask that was cancelled by nobody's wish.
    """

    def __init__(self, database: Database, draw: Random) -> None:
        self.database = database
        self.lender = database._checkouts = Watched(database, draw)
        self.draw = draw
        self.credentials = PostgresCredentialStore(database)
        self.jobs = PostgresJobStore(database, _ids, notify=False)
        self.ledger = Ledger()
        self.told: Counter[str] = Counter()
        self.answers = 0
        self._acts: Mapping[str, Callable[[str], Awaitable[bool]]] = {
            "read": self._read,
            "search": self._search,
            "get": self._get,
            "enqueue": self._enqueue,
            "stream": self._stream,
        }

    async def furnish(self) -> None:
        """Give each tenant a credential and a job."""
        for tenant in TENANTS:
            _, account, generation, blob = _tags(tenant)
            key, sealed = ConnectionKey(tenant, PROVIDER), Sealed(NOBODY, blob)
            new = new_credential(key, FOR_EVER, account_id=account, sealed=sealed, connection_id=_ids.uuid7())
            assert await self.credentials.create(new)
            await run(self.database, GENERATION, tenant, generation)
            assert await self._enqueue(tenant)

    async def run(self, asks: int) -> None:
        """Each asker asks for any tenant, again and again; in the end all of them leave at one moment."""
        ask_numbers = iter(range(asks))

        async def ask_on() -> None:
            for _ in ask_numbers:
                asking, act_name = self._begun()
                if self.draw.random() < CANCELLED:
                    self._have_leave(asking, ROUND_TRIPS[act_name])
                await self._ended(asking)

        await asyncio.gather(*(ask_on() for _ in range(ASKERS)))
        last = [self._begun()[0] for _ in range(ASKERS)]
        await asyncio.sleep(2 * DELAY_S)
        for asking in last:
            asking.cancel()
        await asyncio.gather(*map(self._ended, last))

    async def close(self) -> None:
        """Let go of the batches and of the database."""
        await self.credentials.close()
        await self.jobs.close()
        await self.database.close()

    def _begun(self) -> tuple[asyncio.Task[None], str]:
        act_name, tenant = self.draw.choice(list(self._acts)), self.draw.choice(TENANTS)
        return asyncio.create_task(self._ask(act_name, tenant)), act_name

    def _have_leave(self, asking: asyncio.Task[None], round_trips: int) -> None:
        """At any moment, every other time once it has a connection."""
        if round_trips and self.draw.random() < 0.5:
            self.lender.leaves_after_s[asking] = self.draw.uniform(0.0, round_trips * 2 * DELAY_S)
        else:
            asyncio.get_running_loop().call_later(self.draw.uniform(0.0, IN_LINE_S), asking.cancel)

    async def _ended(self, asking: asyncio.Task[None]) -> None:
        await asyncio.wait([asking])
        self.lender.leaves_after_s.pop(asking, None)
        if asking.cancelled():  # by us, or by somebody who had no business to
            self.told["cancelled" if asking.cancelling() else "CancelledError"] += 1
        elif (error := asking.exception()) is not None:
            self.told[type(error).__name__] += 1

    async def _ask(self, act_name: str, tenant: str) -> None:
        is_own = await self._acts[act_name](tenant)
        self.answers += 1
        self.told[act_name] += 1
        self.told["wrong"] += not is_own

    # ---- what is asked; True for an answer that is the asker's

    async def _read(self, tenant: str) -> bool:
        credential = await self.credentials.read(ConnectionKey(tenant, PROVIDER))
        return credential is not None and _tags_of(credential) == _tags(tenant)

    async def _search(self, tenant: str) -> bool:
        credentials = await self.credentials.search(
            tenant=tenant, provider=None, state=None, limit=len(TENANTS)
        )
        return [_tags_of(credential) for credential in credentials] == [_tags(tenant)]

    async def _get(self, tenant: str) -> bool:
        job = self.draw.choice(self.ledger.jobs[tenant])
        view = await self.jobs.get(job.job_id)
        expected = (job.job_id, tenant, job.args)
        return view is not None and (view.job_id, view.tenant_id, view.args) == expected

    async def _enqueue(self, tenant: str, parts: int = 1) -> bool:
        ask, jobs = self.ledger.ask(tenant, parts)
        results = await self.jobs.enqueue(jobs)
        self.ledger.accept(ask, jobs)
        return results == [Enqueued(job.job_id, True) for job in jobs]

    async def _stream(self, tenant: str) -> bool:
        return await self._enqueue(tenant, PARTS)
