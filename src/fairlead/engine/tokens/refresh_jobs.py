"""The jobs that keep connections fresh: ``token.scan`` finds the due ones, ``token.refresh`` refreshes one.

A refresh job calls the coordinator like any other caller, with the generation that the scan read. A
connection that was refreshed since costs it one read and no request. Spec: R5.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import DueConnection, JobStore, NewJob
from fairlead.engine.tokens.coordinator import Coordinator
from fairlead.engine.tokens.deps import RefreshDeps, RefreshSettings
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import (
    EndpointPausedError,
    EndpointUnavailableError,
    FairleadError,
    NoRefreshTokenError,
    NotFoundError,
    OutcomeUnknownError,
    RateLimitedError,
    ReauthRequiredError,
    RefreshInProgressError,
)
from fairlead.policy.jobs.job import Cancel, Complete, RequireReauth, Snooze
from fairlead.policy.jobs.kinds import REFRESH, SCAN, TOKEN_EXPIRING

REFRESH_TIMEOUT_S = 90.0
BUSY_SNOOZE_S = 2.0
EXPIRED_LATE_S = 1.0


class TokenJobs:
    """Handlers of the token kinds."""

    def __init__(
        self,
        deps: RefreshDeps,
        settings: RefreshSettings,
        coordinator: Coordinator,
        unknown: UnknownOutcomes,
        jobs: JobStore,
    ) -> None:
        self._deps = deps
        self._settings = settings
        self._coordinator = coordinator
        self._unknown = unknown
        self._jobs = jobs

    def handlers(self) -> list[Handler]:
        """Return the handlers for a worker."""
        return [Handler(REFRESH, self.refresh, timeout_s=REFRESH_TIMEOUT_S), Handler(SCAN, self.scan)]

    async def refresh(self, context: JobContext) -> object:
        """Refresh one connection, unless its generation has changed since the scan."""
        connection_id, generation = UUID(context.args["connection_id"]), int(context.args["generation"])
        try:
            fresh = await self._coordinator.refresh(
                connection_id, generation, wait_s=self._settings.lease_s, others_s=0.0
            )
        except (
            RateLimitedError,
            RefreshInProgressError,
            EndpointUnavailableError,
            EndpointPausedError,
        ) as refused:
            return self._snoozed(refused)
        except OutcomeUnknownError as unknown:
            if (unknown.retry_after_s or 0.0) <= self._settings.request_deadline_s:
                return self._snoozed(unknown)  # a grace period may be over before the next scan
            # A scan returns it by the credential's due_at, once it can be resolved.
            return Complete({"state": "unknown", "retry_after_s": unknown.retry_after_s})
        except NoRefreshTokenError as none:
            return Cancel(none.message)
        except ReauthRequiredError as error:
            return RequireReauth(error.reason or error.code)
        except NotFoundError as missing:
            return Cancel(missing.message)
        return Complete({"generation": fresh.generation, "refreshed": fresh.refreshed})

    def _snoozed(self, refused: FairleadError) -> Snooze:
        return Snooze(max(refused.retry_after_s or 0.0, BUSY_SNOOZE_S * self._deps.draw()), refused.subject)

    async def scan(self, context: JobContext) -> object:
        """Enqueue a refresh for each due connection; each has at most one open refresh job. Spec: T3."""
        urgent_only = bool(context.args.get("urgent_only", False))
        most, cool_down_s = self._settings.scan_page, self._settings.retry_dead_after_s
        enqueued = await self._enqueue(await self._deps.store.left_behind(most, cool_down_s))
        count, cursor = 0, None
        while True:
            page = await self._deps.store.due(
                urgent_only=urgent_only,
                cool_down_s=self._settings.retry_dead_after_s,
                cursor=cursor,
                limit=self._settings.scan_page,
            )
            count += len(page.connections)
            enqueued += await self._enqueue([due for due in page.connections if due.refreshable])
            for due in page.connections:
                if not due.refreshable:
                    await self._without_refresh_token(due)
            cursor = page.next_cursor
            if cursor is None:
                return Complete({"due": count, "enqueued": enqueued})

    async def _enqueue(self, due: Sequence[DueConnection]) -> int:
        if not due:
            return 0
        stored = await self._jobs.enqueue([self._refresh_job(connection) for connection in due])
        return sum(job.inserted for job in stored)

    def _refresh_job(self, due: DueConnection) -> NewJob:
        return NewJob(
            job_id=self._deps.ids.uuid7(),
            kind=REFRESH,
            tenant_id=due.key.tenant,
            provider=due.key.provider,
            group_key=str(due.connection_id),
            priority=due.priority,
            args={"connection_id": str(due.connection_id), "generation": due.generation},
            unique_key=str(due.connection_id),
        )

    async def _without_refresh_token(self, due: DueConnection) -> None:
        """Notify that a token is about to expire, or require re-authorisation once it has. Spec: T2."""
        credential = await self._deps.store.read_id(due.connection_id)
        if credential is None or credential.generation != due.generation:
            return
        if credential.expires_in_s is not None and credential.expires_in_s <= 0:
            await self._unknown.require_reauth(credential, NoRefreshTokenError.code, attempt_id=None)
            return
        await self._jobs.enqueue([self._notice(due, credential.expires_at)])
        again_s = None if credential.expires_in_s is None else credential.expires_in_s + EXPIRED_LATE_S
        await self._deps.store.postpone(due.connection_id, due.generation, again_s)

    def _notice(self, due: DueConnection, expires_at: datetime | None) -> NewJob:
        job_id = self._deps.ids.uuid7()
        return NewJob(
            job_id=job_id,
            kind=TOKEN_EXPIRING,
            tenant_id=due.key.tenant,
            provider=due.key.provider,
            group_key=str(due.connection_id),
            args={
                "event_id": str(job_id),
                "connection_id": str(due.connection_id),
                "account": due.key.account,
                "reason": NoRefreshTokenError.code,
                "expires_at": expires_at.isoformat() if expires_at else None,
                "link": self._deps.reauth_link(due.key, due.connection_id),
            },
            unique_key=f"{due.connection_id}:{due.generation}",
        )
