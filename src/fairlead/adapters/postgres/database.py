"""Access to PostgreSQL: one pool of connections, statements from files, driver errors as fairlead's own.

Every wait is bounded: for a connection, for a result, for a dead peer. A statement that loses its connection
raises CommitInDoubtError and is not sent again here, because only the caller can recognise its own effect
(`Database.resolve_doubt`). One statement is one transaction at READ COMMITTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self, TypeVar, cast

import asyncpg

from fairlead.adapters.postgres.connection_checkout import ConnectionCheckout, transaction
from fairlead.adapters.postgres.connection_setup import (
    DatabaseSettings,
    checked_server,
    connect_options,
    guard_socket,
)
from fairlead.adapters.postgres.driver import DatabaseConnection, DatabasePool, Row
from fairlead.adapters.postgres.listen import NotificationListener
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

_RECONNECT_EVERY_S = 2.0
"""Least time between two renewals of all connections while the server is read-only. A fail-over takes 5 s."""
_ROLLED_BACK_TRIES = 5
_RETRY_PAUSES_S = (0.02, 0.1, 0.3, 0.6)  # the last one repeats
ROW_SECURITY_CHECK_S = 300.0
ROW_SECURITY_HINT = "run `fairlead doctor`: it says what is missing, and the statement that helps"


class Transaction:
    """Several statements in one transaction; see `Database.transaction`."""

    def __init__(self, connection: DatabaseConnection, texts: QualifiedTexts) -> None:
        self._connection = connection
        self._texts = texts

    async def fetch(self, statement: Statement, /, **values: object) -> list[Row]:
        """Return the rows of *statement*."""
        return await self._connection.fetch(self._texts[statement.text], *statement.args(**values))


class Database:
    """One schema of one PostgreSQL database. Make it with `open`, end it with `close`."""

    def __init__(self, pool: DatabasePool, settings: DatabaseSettings) -> None:
        self._pool = pool
        self._checkouts = ConnectionCheckout(
            pool, settings.acquire_timeout_s, settings.connect_timeout_s, urgent=settings.urgent_size
        )
        self.settings = settings
        self._texts = QualifiedTexts(settings.in_schema)
        self.tenant_role = COMMON.tenant
        """The role that row security applies to."""
        self.row_security_enabled = False
        """Whether row security separates tenants, as of the latest check; see `for_tenants`."""
        self._refresh_row_security_mono = 0.0
        self._emit: Emit = _ignore
        self._listener = NotificationListener(self._connect_dedicated)
        self._reconnect_mono = 0.0

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> Self:
        """Connect and check the server.

        Raises:
            DependencyUnavailableError: The server cannot be reached.
            InvalidConfigError: It is too old, refuses the login or has synchronous_commit off.
        """
        try:
            pool = await asyncpg.create_pool(
                **connect_options(settings),
                min_size=settings.min_size,
                max_size=settings.max_size,
                init=guard_socket,
                reset=_keep_session,
            )
        except CONNECT_ERRORS as error:
            no_connection(error)
        database = cls(cast(DatabasePool, pool), settings)
        try:
            async with database._checkouts.checkout() as connection:
                await checked_server(connection, settings)
                state = await wall_state(connection, settings.in_schema)
                database.tenant_role, database.row_security_enabled = state.tenant, state.stands
                database._refresh_row_security_mono = asyncio.get_running_loop().time() + ROW_SECURITY_CHECK_S
        except BaseException:
            await database.close()
            raise
        return database

    def report_row_security(self, emit: Emit) -> None:
        """Emit whether row security is missing: now, and whenever a later check finds a change."""
        self._emit = emit
        if not self.row_security_enabled:
            emit(RowSecurityMissing(ROW_SECURITY_HINT))

    async def refresh_row_security(self) -> bool:
        """Return whether row security is enabled; checked again every five minutes. Raises as `fetch` does.

        A process that started before it was enabled uses it from the next check on.
        """
        now_mono = asyncio.get_running_loop().time()
        if now_mono >= self._refresh_row_security_mono:
            self._refresh_row_security_mono = now_mono + ROW_SECURITY_CHECK_S
            [row] = await self.fetch(statement("row_security_state"), schema=self.settings.in_schema)
            was_enabled = self.row_security_enabled
            self.row_security_enabled = RowSecurityState(**dict(row.items())).stands
            if self.row_security_enabled != was_enabled:
                self._emit(
                    RowSecurityEnabled()
                    if self.row_security_enabled
                    else RowSecurityMissing(ROW_SECURITY_HINT)
                )
        return self.row_security_enabled

    async def close(self) -> None:
        """Stop listening, wait a moment for statements under way, and close all connections."""
        await self._listener.close()
        await self._checkouts.close()

    # ---- statements ----------------------------------------------------------------------------

    def for_tenants(self, *tenants: str | None) -> TenantDatabase:
        """Return a view for statements on behalf of *tenants*: row security hides the rows of all others.

        With None among them the view covers all tenants. A statement costs three round trips more than
        `fetch`.

        Spec: R35.
        """
        tenant_ids = tuple(tenant for tenant in tenants if tenant is not None)
        return TenantDatabase(self, tenant_ids if len(tenant_ids) == len(tenants) else None)

    async def fetch(self, statement: Statement, /, **values: object) -> list[Row]:
        """Run *statement* as one transaction and return its rows.

        Raises:
            InvalidInputError: The database refuses the values.
            CommitInDoubtError: The connection broke while the statement ran.
            DependencyUnavailableError: Provably nothing was done; also another SetupError.
        """
        return await self.run(statement, values, None)

    async def urgent(self, statement: Statement, /, **values: object) -> list[Row]:
        """Run `fetch` on a reserved connection, so that a heartbeat waits for no other statement.

        For statements that end at once, one at a time. One that waits for a lock would delay the heartbeat.
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
        """Run `fetch`, under row security if *tenants* are given."""
        args = statement.args(**values)
        tries = 1
        while True:
            try:
                return await self._fetch(statement, args, tenants, urgent)
            except RolledBackError:
                if tries == _ROLLED_BACK_TRIES:
                    raise
            tries += 1

    async def first(self, statement: Statement, /, **values: object) -> Row | None:
        """Return the first row of *statement*, or None."""
        rows = await self.fetch(statement, **values)
        return rows[0] if rows else None

    async def _fetch(
        self, statement: Statement, args: list[object], tenants: tuple[str, ...] | None, urgent: bool
    ) -> list[Row]:
        async with self._checkouts.checkout(urgent=urgent) as connection:
            try:
                if tenants is None and not self.settings.transaction_pooler:
                    return await connection.fetch(self._texts[statement.text], *args)
                async with transaction(connection):  # its steps must reach one server
                    if tenants is not None:
                        await self._enter_tenant_role(connection, tenants)
                    return await connection.fetch(self._texts[statement.text], *args)
            except DRIVER_ERRORS as error:
                raise await self._translate(connection, error) from error

    @asynccontextmanager
    async def transaction(self, tenants: tuple[str, ...] | None = None) -> AsyncIterator[Transaction]:
        """Run the block in one READ COMMITTED transaction. *tenants*: see `for_tenants`.

        Raises as `fetch` does. Only the commit itself raises CommitInDoubtError: an error before it rolls
        back.
        """
        async with self._checkouts.checkout() as connection:
            is_committing = False
            try:
                async with transaction(connection):
                    if tenants is not None:
                        await self._enter_tenant_role(connection, tenants)
                    yield Transaction(connection, self._texts)
                    is_committing = True
            except DRIVER_ERRORS as error:
                translated = await self._translate(connection, error)
                if isinstance(translated, CommitInDoubtError) and not is_committing:
                    translated = not_done(error)
                raise translated from error

    async def resolve_doubt(
        self,
        work: Callable[[], Awaitable[T]],
        in_doubt: Callable[[], Awaitable[T]] | None = None,
        within_s: float = 5.0,
    ) -> T:
        """Run *work*. If its commit is in doubt, retry *in_doubt* until it succeeds.

        Args:
            in_doubt: Recognises what was done already, by an id, a generation or a lease id. Default: *work*,
                which then does so itself.
            within_s: How long to retry. Default 5.
        """
        try:
            return await work()
        except (CommitInDoubtError, RolledBackError) as first:
            return await self._retry(in_doubt or work, first, within_s)

    async def _retry(self, work: Callable[[], Awaitable[T]], first: Exception, within_s: float) -> T:
        deadline_mono = asyncio.get_running_loop().time() + within_s
        tries = 0
        while True:
            await asyncio.sleep(_RETRY_PAUSES_S[min(tries, len(_RETRY_PAUSES_S) - 1)])
            tries += 1
            try:
                return await work()
            except DependencyUnavailableError:
                if asyncio.get_running_loop().time() > deadline_mono:
                    raise first from None

    # ---- notifications -------------------------------------------------------------------------

    async def listen(self, channel: str, on_payload: Callable[[str], None]) -> Callable[[], Awaitable[None]]:
        """Call *on_payload* with each payload of *channel*; "" means that some may have been missed.

        Returns the function that ends it. Behind a transaction pooler no notification arrives.
        """
        if self.settings.transaction_pooler:
            return _nothing_to_stop
        return await self._listener.add(channel, on_payload)

    async def _enter_tenant_role(self, connection: DatabaseConnection, tenants: tuple[str, ...]) -> None:
        try:
            await enter_tenant_role(connection, self.tenant_role, tenants)
        except RowSecurityLostError:
            self._refresh_row_security_mono = 0.0  # the next caller checks
            raise

    async def _translate(self, connection: DatabaseConnection, error: Exception) -> Exception:
        translated = of_statement(error, connected=_is_sound(connection))
        if isinstance(translated, CommitInDoubtError):
            with suppress(asyncpg.InterfaceError):  # the pool was faster
                connection.terminate()
            if isinstance(error, TimeoutError):  # the peer is silent: so are the other connections to it
                await self._pool.expire_connections()
        elif isinstance(translated, ReadOnlyServerError):
            await self._reconnect_all()
        return translated

    async def _reconnect_all(self) -> None:
        """Replace all connections after a failover, at most every `_RECONNECT_EVERY_S`."""
        now_mono = asyncio.get_running_loop().time()
        if now_mono >= self._reconnect_mono:
            self._reconnect_mono = now_mono + _RECONNECT_EVERY_S
            await self._pool.expire_connections()
            self._listener.renew()

    async def _connect_dedicated(self) -> DatabaseConnection:
        """Open a connection outside the pool."""
        try:
            connection = cast(DatabaseConnection, await asyncpg.connect(**connect_options(self.settings)))
            await guard_socket(connection)
        except CONNECT_ERRORS as error:
            no_connection(error)
        return connection


def _is_sound(connection: DatabaseConnection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # it broke, so the pool has taken it back already
        return False


async def _keep_session(_connection: DatabaseConnection) -> None:
    """Reset nothing: our statements leave no state in a session, so returning it costs no round trip."""


async def _nothing_to_stop() -> None:
    return


def _ignore(_event: Event) -> None:
    """Drop events until `report_row_security` sets a subscriber."""
