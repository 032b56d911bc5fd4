"""Runs one refresh per generation across all processes.

In one process a connection has at most one refresh in flight: a task of its own, which no caller can cancel.
Across processes the rotation row decides. The task reads, plans, does one step and reads again, until there
is a token to serve or an error to raise. Spec: T4, T5, T6, R5.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from fairlead.engine.base.timing import LEAVE_S, with_deadline
from fairlead.engine.ports import Credential
from fairlead.engine.tokens.deps import FreshToken, RefreshDeps, RefreshSettings, error_of
from fairlead.engine.tokens.request_sender import WAITABLE, RefreshRequestSender
from fairlead.engine.tokens.settle import Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import (
    FairleadError,
    NoRefreshTokenError,
    NotFoundError,
    OutcomeUnknownError,
    RateLimitedError,
    ReauthRequiredError,
    RefreshInProgressError,
    RefusedError,
    RequestRejectedError,
)
from fairlead.events import ServiceFailed
from fairlead.policy.tokens import refresh as policy

MAX_STEPS = 200
"""A refresh with more steps than this is a bug, and fails."""
LOOK_AGAIN_S = 0.005
REFUSED_S = 60.0
"""How long this process does not resend a rejected refresh, unless the grant is replaced."""
MOST_REFUSED = 10_000


@dataclass(slots=True)
class _Refresh:
    newer_than: int | None
    task: asyncio.Task[FreshToken]


class Coordinator:
    """Refreshes credentials in the process that asks. A refresh job is a caller like any other."""

    def __init__(
        self,
        deps: RefreshDeps,
        settings: RefreshSettings,
        sender: RefreshRequestSender,
        settler: Settler,
        unknown: UnknownOutcomes,
    ) -> None:
        self._deps = deps
        self._settings = settings
        self._sender = sender
        self._settler = settler
        self._unknown = unknown
        self._refreshes: dict[UUID, _Refresh] = {}
        self._refused: dict[UUID, tuple[int, float, RequestRejectedError]] = {}
        self._closing = False

    async def refresh(
        self,
        connection_id: UUID,
        newer_than: int | None,
        *,
        wait_s: float | None = None,
        others_s: float | None = None,
        actor: str = "fairlead",
    ) -> FreshToken:
        """Return a token newer than generation *newer_than* (None: any that lasts), refreshed if need be.

        Callers share one task. It continues when a caller is cancelled or its wait ends, even after the
        request was sent.

        Args:
            wait_s: The longest wait of this caller. Default `RefreshSettings.wait_s`.
            others_s: The longest wait of the task for another process. Default *wait_s*.

        Raises:
            NotFoundError, RateLimitedError, RefreshInProgressError, EndpointUnavailableError,
            EndpointPausedError, ReauthRequiredError, OutcomeUnknownError, NotSentError,
            TransientFailureError, RequestRejectedError, SetupError: There is no such token.
        """
        wait_s = self._settings.wait_s if wait_s is None else wait_s
        until_mono = self._deps.clock.monotonic() + wait_s
        for _ in range(2):
            refresh = self._refreshes.get(connection_id)
            joined = refresh is not None
            if refresh is None:
                refresh = self._start(
                    connection_id, newer_than, wait_s if others_s is None else others_s, actor
                )
            await self._wait_for(refresh.task, until_mono, connection_id)
            error = refresh.task.exception()
            if error is None:
                fresh = refresh.task.result()
                if not joined or newer_than in (None, refresh.newer_than) or fresh.generation > newer_than:
                    return fresh
            elif not joined or not isinstance(error, FairleadError):
                raise error
            elif refresh.newer_than == newer_than:
                raise copy(error) from error  # a shared object would collect the frames of every caller
            # That refresh was for another generation, and has finished: start another one.
        raise self._in_progress_error(connection_id)

    async def _wait_for(
        self, refresh: asyncio.Task[FreshToken], until_mono: float, connection_id: UUID
    ) -> None:
        """Wait for *refresh* without owning it; raise RefreshInProgressError if it takes longer."""
        left_s = until_mono - self._deps.clock.monotonic()
        late = partial(self._in_progress_error, connection_id)
        await with_deadline(_ended(refresh), self._deps.clock, left_s, late)
        if refresh.cancelled():
            raise self._stopping() if self._closing else late()

    def start_background(self, connection_id: UUID, newer_than: int) -> None:
        """Start a refresh without waiting for it, unless one is in flight or this process is stopping."""
        if connection_id not in self._refreshes and not self._closing:
            self._start(connection_id, newer_than, 0.0, "fairlead")

    def _start(self, connection_id: UUID, newer_than: int | None, others_s: float, actor: str) -> _Refresh:
        """Start the task that refreshes a connection. It waits for another process for *others_s* at most."""
        if self._closing:
            raise self._stopping()
        task = asyncio.create_task(
            self._run(connection_id, newer_than, others_s, actor), name=f"refresh:{connection_id}"
        )
        refresh = _Refresh(newer_than, task)
        self._refreshes[connection_id] = refresh
        task.add_done_callback(lambda done: self._finished(connection_id, done))
        return refresh

    def _stopping(self) -> RefusedError:
        return RefusedError("this process is stopping", hint="ask another process", retry_after_s=1.0)

    def _finished(self, connection_id: UUID, done: asyncio.Task[FreshToken]) -> None:
        self._refreshes.pop(connection_id, None)
        self._sender.sent.discard(connection_id)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        is_cut_off = done.cancelled() and self._closing
        if error is not None and not is_cut_off and not isinstance(error, FairleadError):
            # it may have no caller any more
            self._deps.emit(ServiceFailed("coordinator", f"{type(error).__name__} in a refresh"))

    async def _run(
        self, connection_id: UUID, newer_than: int | None, others_s: float, actor: str
    ) -> FreshToken:
        started_mono = self._deps.clock.monotonic()
        pause_s = 0.02
        for _ in range(MAX_STEPS):
            read_mono = self._deps.clock.monotonic()
            credential = await self._deps.store.read_id(connection_id)
            if credential is None:
                raise NotFoundError(f"there is no connection {connection_id}")
            plan = self._plan(credential, newer_than)
            if isinstance(plan, policy.Wait):
                if self._deps.clock.monotonic() - started_mono >= others_s:
                    raise error_of(
                        RefreshInProgressError, credential, "another process is refreshing", retry_after_s=1.0
                    )
                await self._deps.clock.sleep(pause_s)
                pause_s = min(pause_s * 1.6, 0.5)
                continue
            try:
                fresh = await self._step(plan, credential, read_mono, actor)
            except RateLimitedError as refused:
                left_s = started_mono + others_s - self._deps.clock.monotonic()
                if refused.reason not in WAITABLE.values() or (refused.retry_after_s or 0.0) > left_s:
                    raise
                await self._deps.clock.sleep(refused.retry_after_s or 0.0)
                continue
            if fresh is not None:
                return fresh
            await self._deps.clock.sleep(LOOK_AGAIN_S)  # a lost race must not become a spin
        raise self._in_progress_error(connection_id)

    def _plan(self, credential: Credential, newer_than: int | None) -> policy.Plan:
        return policy.plan_refresh(
            self._snapshot(credential),
            newer_than,
            cooldown_s=self._settings.cooldown_s,
            min_remaining_s=self._settings.min_remaining_s,
        )

    def _snapshot(self, credential: Credential) -> policy.CredentialSnapshot:
        rotation = credential.rotation
        in_flight = None
        if rotation is not None and rotation.from_generation == credential.generation:
            in_flight = policy.InFlight(
                phase=rotation.phase,
                was_sent=rotation.age_sent_s is not None,
                is_owner_alive=not (rotation.owner_lost or rotation.expired),
                is_ours=rotation.session_id == self._deps.session_id(),
            )
        return policy.CredentialSnapshot(
            state=credential.state,
            generation=credential.generation,
            refreshable=credential.refreshable,
            expires_in_s=credential.expires_in_s,
            refreshed_age_s=credential.refreshed_age_s,
            in_flight=in_flight,
        )

    async def _step(
        self, plan: policy.Plan, credential: Credential, read_mono: float, actor: str
    ) -> FreshToken | None:
        """Do what *plan* says of the credential that was read at *read_mono*; None: read and plan again."""
        match plan:
            case policy.Serve():
                return await self._settler.open_token(credential)
            case policy.Start():
                return await self._send(credential, actor)
            case policy.Recover():
                await self._unknown.recover(credential)
                return None
            case policy.ResolveUnknown():
                replay = await self._unknown.may_replay(credential, read_mono)
                if replay is None:
                    return None
                return await self._sender.send(credential, replay=replay, actor=actor)
            case policy.CoolDown(retry_after_s=retry_after_s):
                raise error_of(
                    RateLimitedError,
                    credential,
                    f"refreshed less than {self._settings.cooldown_s:g} s ago",
                    retry_after_s=retry_after_s,
                )
            case policy.Refuse(why=why):
                raise await self._refusal(credential, why)
            case policy.Wait():
                return None

    async def _send(self, credential: Credential, actor: str) -> FreshToken | None:
        """Send a refresh, or raise the rejection of a moment ago again without a request."""
        connection_id = credential.connection.connection_id
        generation, until_mono, refusal = self._refused.get(connection_id, (0, 0.0, None))
        if refusal is not None and generation == credential.generation:
            if self._deps.clock.monotonic() < until_mono:
                raise copy(refusal) from refusal
            del self._refused[connection_id]
        # a fail-over or a restore may have lost the response to a request that spent the token (R11)
        if not await self._unknown.may_start(credential):
            return None
        try:
            return await self._sender.send(credential, replay=None, actor=actor)
        except RequestRejectedError as rejected:
            if len(self._refused) >= MOST_REFUSED:
                self._refused.pop(next(iter(self._refused)))
            until_mono = self._deps.clock.monotonic() + REFUSED_S
            self._refused[connection_id] = (credential.generation, until_mono, copy(rejected))
            raise

    async def _refusal(self, credential: Credential, why: str) -> FairleadError:
        if why == "unknown":
            message = "a refresh of unknown outcome was imported; it is sent once its access token has ended"
            return error_of(OutcomeUnknownError, credential, message, retry_after_s=credential.expires_in_s)
        if why != "no_refresh_token":
            reason = credential.state_reason or why
            return error_of(ReauthRequiredError, credential, f"the grant is gone ({reason})", reason=reason)
        if credential.expires_in_s is not None and credential.expires_in_s <= 0:
            await self._unknown.require_reauth(credential, NoRefreshTokenError.code, attempt_id=None)
        return error_of(
            NoRefreshTokenError, credential, "there is no refresh token", reason=NoRefreshTokenError.code
        )

    def _in_progress_error(self, connection_id: UUID) -> FairleadError:
        message = (
            f"a refresh of connection {connection_id} is under way and took longer than the caller waits"
        )
        return RefreshInProgressError(message, retry_after_s=1.0)

    async def drain(self, grace_s: float) -> int:
        """Refuse new refreshes and wait for the present ones; return how many were cancelled.

        After *grace_s* a refresh that was sent still gets the whole time for its response, which is the only
        copy of the next refresh token. The rotation of a cancelled one stays in the database: an unsent one
        is taken over, and a sent one is recovered from the journal or resolved by the replay policy.
        """
        self._closing = True
        tasks = {refresh.task: connection_id for connection_id, refresh in self._refreshes.items()}
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=grace_s)
        sent = {task for task in late if tasks[task] in self._sender.sent}
        for task in late - sent:
            task.cancel()
        if sent:
            await asyncio.wait(sent, timeout=self._settings.request_deadline_s + LEAVE_S)
        for task in sent:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return sum(task.cancelled() for task in late)


async def _ended(refresh: asyncio.Task[FreshToken]) -> None:
    """Wait until *refresh* has ended in any way. It continues if the caller is cancelled.

    Does the same as asyncio.wait, which makes sets and iterators.
    """
    if refresh.done():
        return
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_refresh: asyncio.Task[FreshToken]) -> None:
        if not ended.done():
            ended.set_result(None)

    refresh.add_done_callback(wake)
    try:
        await ended
    finally:
        refresh.remove_done_callback(wake)
