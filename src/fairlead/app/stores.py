"""The stores of an open Fairlead: those of a Runtime, or a test's stores in memory."""

from __future__ import annotations

from typing import Protocol

from fairlead._core.clock import Clock
from fairlead._core.ids import Ids
from fairlead.engine.ports import CallerJobs, ConnectionKey, JobStore
from fairlead.policy.tokens.token import PublicToken


class TokenStore(Protocol):
    """A store of valid tokens."""

    async def token(self, key: ConnectionKey) -> PublicToken: ...
    async def refreshed_after(self, key: ConnectionKey, newer_than: int | None) -> PublicToken: ...


class Stores(Protocol):
    """The parts of a Runtime that a Fairlead uses."""

    @property
    def jobs(self) -> JobStore: ...
    @property
    def callers(self) -> CallerJobs: ...
    @property
    def reader(self) -> TokenStore: ...
    @property
    def ids(self) -> Ids: ...
    @property
    def clock(self) -> Clock: ...
