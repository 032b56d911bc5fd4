"""The way to PostgreSQL: one pool of connections, statements from files, errors in our own words.

Every wait ends: for a connection, for an answer, for a dead peer. A statement whose connection breaks while
it is under way raises CommitInDoubtError; it is never sent again by this module, because only the caller knows how
to recognise its own effect (`Database.again`). One statement is one transaction at READ COMMITTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self, TypeVar, cast

import asyncpg

from fairlead.adapters.postgres.connection_checkout import ConnectionCheckout, whole
from fairlead.adapters.postgres.connection_setup import (
    DatabaseSettings,
    checked_server,
    connect_options,
    guard_socket,
)
from fairlead.adapters.postgres.driver import Connection, Pool, Row
from fairlead.adapters.postgres.listen import Listener
from fairlead.adapters.postgres.postgres_errors import (
    CONNECT_ERRORS,
    DRIVER_ERRORS,
    CommitInDoubtError,
    ReadOnlyServerError,
    RolledBackError,
    no_connection,
    not_done,
    of_statement,
)
from fairlead.adapters.postgres.qualified import QualifiedTexts
from fairlead.adapters.postgres.roles import COMMON
from fairlead.adapters.postgres.row_security import (
    RowSecurityLostError,
    RowSecurityState,
    TenantDatabase,
    enter_tenant_role,
    wall_state,
)
from fairlead.adapters.postgres.statements import Statement, statement
from fairlead.errors import DependencyUnavailableError
from fairlead.events import Emit, Event, RowSecurityEnabled, RowSecurityMissing

T = TypeVar("T")

_ANEW_EVERY_S = 2.0
"""A server that stays read-only is asked by so few new sessions; a fail-over is over within 5 s (E15)."""
_UNDONE_TRIES = 5
_AGAIN_PAUSE_S = (0.02, 0.1, 0.3, 0.6)  # the last one repeats
WALL_LOOK_EVERY_S = 300.0
WALL_ADVICE = "run `fairlead doctor`: it says what is missing, and the statement that helps"


class Transaction:
    """Several statements that count as one; see `Database.transaction`."""

    def __init__(self, connection: Connection, texts: QualifiedTexts) -> None:
        self._connection = connection
        self._texts = texts

    async def fetch(self, statement: Statement, /, **values: object) -> list[Row]:
        """The rows of *statement*."""
        return await self._connection.fetch(self._texts[statement.text], *statement.args(**values))


class Database:
    """One schema of one PostgreSQL database. Make it with `open`, end it with `close`."""

    def __init__(self, pool: Pool, settings: DatabaseSettings) -> None:
        self._pool = pool
        self._checkouts = ConnectionCheckout(
            pool, settings.acquire_timeout_s, settings.connect_timeout_s, urgent=settings.urgent_size
        )
        self.settings = settings
        self._texts = QualifiedTexts(settings.in_schema)
        self.tenant_role = COMMON.tenant
        """The role that the second wall binds."""
        self.walled = False
        """Whether the second wall between tenants stands, as far as this process knows; see `of`."""
        self._look_at_s = 0.0
        self._emit: Emit = _nobody_listens
        self._listener = Listener(self._dedicated)
        self._anew_from_s = 0.0

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> Self:
        """Connect and check the server.

        Raises DependencyUnavailableError if it is not there, InvalidConfigError if it is too old, refuses the login or
        has synchronous_commit off.
        """
        try:
            pool = await asyncpg.create_pool(
                **connect_options(settings),
                min_size=settings.min_size,
                max_size=settings.max_size,
                init=guard_socket,
                reset=_as_it_is,
            )
        except CONNECT_ERRORS as error:
            no_connection(error)
        database = cls(cast(Pool, pool), settings)
        try:
            async with database._checkouts.checkout() as connection:
                await checked_server(connection, settings)
                wall = await wall_state(connection, settings.in_schema)
                database.tenant_role, database.walled = wall.tenant, wall.stands
                database._look_at_s = asyncio.get_running_loop().time() + WALL_LOOK_EVERY_S
        except BaseException:
            await database.close()
            raise
        return database

    def tell_of_wall(self, emit: Emit) -> None:
        """Have *emit* told that there is no second wall: now, and whenever that turns out to have changed."""
        self._emit = emit
        if not self.walled:
            emit(RowSecurityMissing(WALL_ADVICE))

    async def look_at_wall(self) -> bool:
        """Whether the second wall stands; it is looked at anew every five minutes. Raises as `fetch` does.

        So a process that was there first has the wall, too, once it is raised.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + WALL_LOOK_EVERY_S
            [found] = await self.fetch(statement("tenant_wall_state"), schema=self.settings.in_schema)
            before, self.walled = self.walled, RowSecurityState(**dict(found.items())).stands
            if self.walled != before:
                self._emit(RowSecurityEnabled() if self.walled else RowSecurityMissing(WALL_ADVICE))
        return self.walled

    async def close(self) -> None:
        """Stop listening, wait a moment for statements under way, and close all connections."""
        await self._listener.close()
        await self._checkouts.close()

    # ---- statements ----------------------------------------------------------------------------

    def for_tenants(self, *tenants: str | None) -> TenantDatabase:
        """For statements made for *tenants*: rows of others are neither seen nor written (R35).

        With None among them for those of all. Costs three round trips more than `fetch`.
        """
        named = tuple(tenant for tenant in tenants if tenant is not None)
        return TenantDatabase(self, named if len(named) == len(tenants) else None)

    async def fetch(self, statement: Statement, /, **values: object) -> list[Row]:
        """Run *statement* as one transaction and give its rows.

        Raises InvalidInputError for values that the database refuses, CommitInDoubtError if the connection broke on
        the way, DependencyUnavailableError or another SetupError if provably nothing was done.
        """
        return await self.run(statement, values, None)

    async def urgent(self, statement: Statement, /, **values: object) -> list[Row]:
        """`fetch`, with a connection that is kept for it: what keeps a process alive waits behind nobody.

        For what is done at once, one at a time; what may wait for a lock would hold up the heartbeat.
        """
        return await self.run(statement, values, None, urgent=True)

    async def run(
        self,
        statement: Statement,
        values: dict[str, object],
        tenants: tuple[str, ...] | None,
        *,
        urgent: bool = False,
    ) -> list[Row]:
        """`fetch`, behind the wall where *tenants* are given."""
        args = statement.args(**values)
        tries = 1
        while True:
            try:
                return await self._fetch(statement, args, tenants, urgent)
            except RolledBackError:
                if tries == _UNDONE_TRIES:
                    raise
            tries += 1

    async def first(self, statement: Statement, /, **values: object) -> Row | None:
        """The first row of *statement*, or None."""
        rows = await self.fetch(statement, **values)
        return rows[0] if rows else None

    async def _fetch(
        self, statement: Statement, args: list[object], tenants: tuple[str, ...] | None, urgent: bool
    ) -> list[Row]:
        async with self._checkouts.checkout(urgent=urgent) as connection:
            try:
                if tenants is None and not self.settings.transaction_pooler:
                    return await connection.fetch(self._texts[statement.text], *args)
                async with whole(connection):  # its steps must reach one server
                    if tenants is not None:
                        await self._raise_wall(connection, tenants)
                    return await connection.fetch(self._texts[statement.text], *args)
            except DRIVER_ERRORS as error:
                raise await self._judged(connection, error) from error

    @asynccontextmanager
    async def transaction(self, tenants: tuple[str, ...] | None = None) -> AsyncIterator[Transaction]:
        """A READ COMMITTED transaction: all of its statements count, or none. *tenants*: see `of`.

        Raises like `fetch`. CommitInDoubtError comes only from the commit itself: what breaks before it is undone.
        """
        async with self._checkouts.checkout() as connection:
            inside = True
            try:
                async with whole(connection):
                    if tenants is not None:
                        await self._raise_wall(connection, tenants)
                    yield Transaction(connection, self._texts)
                    inside = False
            except DRIVER_ERRORS as error:
                judged = await self._judged(connection, error)
                if inside and isinstance(judged, CommitInDoubtError):
                    judged = not_done(error)
                raise judged from error

    async def resolve_doubt(
        self,
        work: Callable[[], Awaitable[T]],
        in_doubt: Callable[[], Awaitable[T]] | None = None,
        within_s: float = 5.0,
    ) -> T:
        """Run *work*; where its commit is in doubt, run *in_doubt* until it ends, at most *within_s* longer.

        *in_doubt* recognises what was done already, by an id, a generation or a lease id; by default *work*
        does so itself.
        """
        try:
            return await work()
        except (CommitInDoubtError, RolledBackError) as first:
            return await self._resolved(in_doubt or work, first, within_s)

    async def _resolved(self, work: Callable[[], Awaitable[T]], first: Exception, within_s: float) -> T:
        deadline = asyncio.get_running_loop().time() + within_s
        tries = 0
        while True:
            await asyncio.sleep(_AGAIN_PAUSE_S[min(tries, len(_AGAIN_PAUSE_S) - 1)])
            tries += 1
            try:
                return await work()
            except DependencyUnavailableError:
                if asyncio.get_running_loop().time() > deadline:
                    raise first from None

    # ---- notifications -------------------------------------------------------------------------

    async def listen(self, channel: str, on_payload: Callable[[str], None]) -> Callable[[], Awaitable[None]]:
        """Call *on_payload* with what is notified on *channel*; "" means: something may have been missed.

        Gives the function that ends it. Behind a transaction pooler nothing is ever heard.
        """
        if self.settings.transaction_pooler:
            return _nothing_to_stop
        return await self._listener.add(channel, on_payload)

    async def _raise_wall(self, connection: Connection, tenants: tuple[str, ...]) -> None:
        try:
            await enter_tenant_role(connection, self.tenant_role, tenants)
        except RowSecurityLostError:  # whoever comes next knows it
            self._look_at_s = 0.0
            raise

    async def _judged(self, connection: Connection, error: Exception) -> Exception:
        judged = of_statement(error, connected=_is_sound(connection))
        if isinstance(judged, CommitInDoubtError):
            with suppress(asyncpg.InterfaceError):  # the pool was faster
                connection.terminate()
            if isinstance(error, TimeoutError):  # the peer is silent: so are the other connections to it
                await self._pool.expire_connections()
        elif isinstance(judged, ReadOnlyServerError):
            await self._look_anew()
        return judged

    async def _look_anew(self) -> None:
        """The primary is elsewhere by now, or will be: give up all connections, not too often."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._anew_from_s:
            self._anew_from_s = now_s + _ANEW_EVERY_S
            await self._pool.expire_connections()
            self._listener.renew()

    async def _dedicated(self) -> Connection:
        """A connection of its own, outside the pool."""
        try:
            connection = cast(Connection, await asyncpg.connect(**connect_options(self.settings)))
            await guard_socket(connection)
        except CONNECT_ERRORS as error:
            no_connection(error)
        return connection


def _is_sound(connection: Connection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # it broke, so the pool has taken it back already
        return False


async def _as_it_is(_connection: Connection) -> None:
    """Our statements leave nothing behind in a session, so handing it back costs no round trip."""


async def _nothing_to_stop() -> None:
    return


def _nobody_listens(_event: Event) -> None:
    """Until somebody does."""
