"""The Python door: keep tokens fresh from inside your own program.

    async with Fairlead.from_env() as fl:
        token = await fl.token("acme", "mercadolibre")

A ``Fairlead`` owns nothing global: make as many as you like, inside any asyncio program. It reads, refreshes
and enqueues; with ``await fl.run()`` it also works, which is what ``fairlead run`` does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from fairlead.config import Config, load
from fairlead.engine.connections import ConnectionView, Grant
from fairlead.engine.handler import Handler, JobContext
from fairlead.engine.ports import ConnectionKey, NewJob
from fairlead.errors import ConfigInvalid
from fairlead.policy.job import Priority, check_new_job, parse_priority
from fairlead.policy.token import PublicToken
from fairlead.runtime import Roles, Runtime
from fairlead.secret import Secret

Run = Callable[[JobContext], Awaitable[object]]
R = TypeVar("R", bound=Run)
T = TypeVar("T")
Subscriber = Callable[[Mapping[str, Any]], object]
S = TypeVar("S", bound=Subscriber)

OPEN_EVENTS = frozenset({"needs_reauth", "token_expiring"})


class Fairlead:
    """fairlead inside your program. Use it with ``async with``; see the module for an example."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._handlers: dict[str, Handler] = {}
        self._subscribers: dict[str, list[Subscriber]] = {name: [] for name in OPEN_EVENTS}
        self._runtime: Runtime | None = None
        self.connections = ConnectionsDoor(self)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, *, config: Path | None = None) -> Fairlead:
        """Settings from *environ* (default: this process's) and a file; ConfigInvalid names all problems."""
        return cls(load(os.environ if environ is None else environ, config))

    # ---- life ----------------------------------------------------------------------------------

    async def __aenter__(self) -> Fairlead:
        self._runtime = await Runtime.open(self._config, self._handlers.values(), self._subscribers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    async def run(self, roles: Roles | None = None) -> None:
        """Work until ``stop``: schedules, workers, rescue (default all). Other calls go on beside it."""
        await self.runtime.run(roles or Roles())

    def stop(self) -> None:
        """End ``run``: claim no more, let jobs end within the grace, hand the rest back. Twice: at once."""
        self.runtime.stop()

    @property
    def runtime(self) -> Runtime:
        """What is running; ConfigInvalid outside of ``async with``."""
        if self._runtime is None:
            raise ConfigInvalid("this Fairlead is not open", hint="use it inside `async with`")
        return self._runtime

    @property
    def sync(self) -> SyncFairlead:
        """The same for code without asyncio (Django, Celery): token and enqueue, on a thread of its own."""
        return SyncFairlead(self)

    # ---- tokens --------------------------------------------------------------------------------

    async def token(self, tenant: str, provider: str, bucket: str = "default") -> PublicToken:
        """A token that is valid now, refreshed if need be.

        Raises NotFound, ReauthRequired (send the customer the link), or a Refused with ``retry_after_s``.
        """
        return await self.runtime.reader.token(ConnectionKey(tenant, provider, bucket))

    async def refresh(
        self, tenant: str, provider: str, bucket: str = "default", *, newer_than: int | None = None
    ) -> PublicToken:
        """A token newer than *newer_than* (``token.generation`` after a 401); one POST however many ask.

        Without it, one that lasts for more than a minute will do, and is refreshed only otherwise (T6).
        """
        return await self.runtime.reader.newer(ConnectionKey(tenant, provider, bucket), newer_than)

    # ---- events and jobs -----------------------------------------------------------------------

    def on(self, event: str) -> Callable[[S], S]:
        """Call the decorated function for each *event* (``needs_reauth``, ``token_expiring``).

        It runs in whichever worker process takes the notice job, at least once; register before ``run``.
        """
        if event not in OPEN_EVENTS:
            known = ", ".join(sorted(OPEN_EVENTS))
            raise ConfigInvalid(f"there is no event {event!r} to subscribe to", hint=f"one of: {known}")

        def register(subscriber: S) -> S:
            self._subscribers[event].append(subscriber)
            return subscriber

        return register

    def job(self, kind: str, *, timeout_s: float = 60.0) -> Callable[[R], R]:
        """Run jobs of *kind* by the decorated coroutine function; register before entering."""

        def register(run: R) -> R:
            if kind in self._handlers or ("." in kind and kind.split(".", maxsplit=1)[0] in RESERVED):
                raise ConfigInvalid(f"kind {kind!r} is taken", hint="choose another name")
            self._handlers[kind] = Handler(kind, run, timeout_s=timeout_s)
            return run

        return register

    async def enqueue(
        self,
        kind: str,
        args: Mapping[str, Any] | None = None,
        *,
        tenant: str,
        queue: str = "default",
        provider: str | None = None,
        priority: str | int = "normal",
        delay_s: float = 0.0,
        unique_key: str | None = None,
        unique_for_s: float | None = None,
        expires_in_s: float | None = None,
    ) -> UUID:
        """Store one job; its id, or that of the open job with the same *unique_key*. Raises InputInvalid."""
        job = NewJob(
            job_id=self.runtime.ids.uuid7(),
            kind=kind,
            tenant_id=tenant,
            queue=queue,
            provider=provider,
            priority=int(_priority(priority)),
            delay_s=delay_s,
            args=dict(args or {}),
            unique_key=unique_key,
            unique_for_s=unique_for_s,
            expires_in_s=expires_in_s,
        )
        check_new_job(job)
        stored = await self.runtime.jobs.enqueue([job])
        return stored[0].job_id


RESERVED = frozenset({"token", "event", "dead_letter"})


def _priority(given: str | int) -> Priority:
    return parse_priority(given)


class ConnectionsDoor:
    """``fl.connections``: connect accounts and look after them."""

    def __init__(self, fairlead: Fairlead) -> None:
        self._fairlead = fairlead

    async def upsert(  # noqa: PLR0913 - a user names what they have
        self,
        tenant: str,
        provider: str,
        *,
        bucket: str = "default",
        variant: str | None = None,
        endpoint: Mapping[str, str] | None = None,
        account_id: str | None = None,
        access_token: str | None = None,
        refresh_token: str | None = None,
        api_key: str | None = None,
        expires_in_s: float | None = None,
        scope: str | None = None,
        client_id: str = "",
        client_secret: str | None = None,
        private_key: str | None = None,
        key_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        actor: str = "api",
    ) -> ConnectionView:
        """Connect an account, or reconnect it in place with a new grant (its id stays).

        Raises InputInvalid or ProviderNotFound before anything is changed.
        """
        grant = Grant(
            access_token=_secret(access_token),
            refresh_token=_secret(refresh_token),
            api_key=_secret(api_key),
            expires_in_s=expires_in_s,
            scope=scope,
            account_id=account_id,
            client_id=client_id,
            client_secret=_secret(client_secret),
            private_key=_secret(private_key),
            key_id=key_id,
            variant=variant,
            endpoint=dict(endpoint or {}),
            settings=None if settings is None else dict(settings),
        )
        key = ConnectionKey(tenant, provider, bucket)
        view = await self._fairlead.runtime.connections.upsert(key, grant, actor=actor)
        self._fairlead.runtime.reader.forget(key)
        return view

    async def get(self, tenant: str, provider: str, bucket: str = "default") -> ConnectionView:
        """One connection; NotFound where there is none."""
        return await self._fairlead.runtime.connections.get(ConnectionKey(tenant, provider, bucket))

    async def search(
        self,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        state: str | None = None,
        limit: int = 1000,
    ) -> list[ConnectionView]:
        """Connections by tenant, provider and state."""
        return await self._fairlead.runtime.connections.search(
            tenant=tenant, provider=provider, state=state, limit=limit
        )

    async def revoke(
        self, tenant: str, provider: str, bucket: str = "default", *, reason: str = "", actor: str = "api"
    ) -> bool:
        """End the grant here and, where the provider offers that, there. False if it was revoked before."""
        key = ConnectionKey(tenant, provider, bucket)
        news, _ = await self._fairlead.runtime.accounts.revoke(key, actor=actor, reason=reason or "revoked")
        return news

    async def remove(
        self, tenant: str, provider: str, bucket: str = "default", *, actor: str = "api"
    ) -> bool:
        """Delete the connection and its secrets here. The grant at the provider stays: revoke first."""
        key = ConnectionKey(tenant, provider, bucket)
        removed = await self._fairlead.runtime.connections.remove(key, actor=actor)
        self._fairlead.runtime.reader.forget(key)
        return removed


def _secret(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)


class SyncFairlead:
    """fairlead for code without asyncio: a thin facade over an event loop on a thread of its own (D10).

    ``with fl.sync as sf: sf.token("acme", "mercadolibre")``. Not for use inside an event loop."""

    def __init__(self, fairlead: Fairlead) -> None:
        self._fairlead = fairlead
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fairlead-sync", daemon=True)

    def __enter__(self) -> SyncFairlead:
        self._thread.start()
        try:
            self._wait(self._fairlead.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self._fairlead.__aexit__(kind, error, trace))
        finally:
            self._end()

    def token(self, tenant: str, provider: str, bucket: str = "default") -> PublicToken:
        """See ``Fairlead.token``."""
        return self._wait(self._fairlead.token(tenant, provider, bucket))

    def enqueue(self, kind: str, args: Mapping[str, Any] | None = None, *, tenant: str, **more: Any) -> UUID:
        """See ``Fairlead.enqueue``."""
        return self._wait(self._fairlead.enqueue(kind, args, tenant=tenant, **more))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
