"""Read the state of a grant after its credential was refused, and let jobs without a grant wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from fairlead.engine.jobs.group_holds import GroupHolds
from fairlead.engine.ports import ConnectionKey, Discarded, GrantState, Job, Outcome
from fairlead.policy.jobs.grant_wait import GrantStatus, RefusedCredential, grant_wait, refused_credential
from fairlead.policy.jobs.job import WAITS, RequireReauth, Retry
from fairlead.policy.jobs.job import Outcome as AnyOutcome


class GrantStore(Protocol):
    """The part of the CredentialStore that ends of runs reach."""

    async def await_grant(self, key: ConnectionKey) -> GrantState | None: ...


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that ended by *error*, because *credential* was refused.

    *outcome* applies if the grant is fine.
    """

    outcome: Retry
    error: Exception
    credential: RefusedCredential


RunEnd = AnyOutcome | RefusedRun
"""How a run ended, before its stored outcome is decided."""


class GrantWaits:
    """The waits of jobs for new grants. Without *grants* the error of a run is believed."""

    def __init__(self, grants: GrantStore | None, holds: GroupHolds) -> None:
        self._grants = grants
        self._holds = holds

    async def resolve(
        self, job: Job, run_end: RefusedRun | RequireReauth, ran_s: float
    ) -> tuple[RunEnd, UUID | None]:
        """Return how *job* waits after a run of *ran_s* seconds, or *run_end* if the run has failed.

        The second value is the id of its connection, if known.
        """
        refused = run_end.credential if isinstance(run_end, RefusedRun) else credential_of(job, None)
        assert refused is not None
        grant, state = await self._grant_of(refused, ran_s)
        waits = job.streaks.get(WAITS, 0)
        wait = grant_wait(refused, grant, tenant=job.tenant_id, group=job.group_key, waits=waits)
        if wait is not None and wait.in_place and grant is not GrantStatus.INVALID:
            wait = await self._holds.hold_group(job, wait)
        is_of_tenant = refused.tenant == job.tenant_id
        return wait or run_end, state.connection_id if state is not None and is_of_tenant else None

    async def _grant_of(
        self, refused: RefusedCredential, ran_s: float
    ) -> tuple[GrantStatus, GrantState | None]:
        if self._grants is None or not refused.group:
            return GrantStatus.UNKNOWN, None
        key = ConnectionKey(refused.tenant, refused.provider, refused.account)
        try:
            state = await self._grants.await_grant(key)
        except Exception:  # noqa: BLE001 (the run has ended, and its outcome is written in any case)
            return GrantStatus.UNREADABLE, None
        if state is None:
            return GrantStatus.UNKNOWN, None
        if state.is_gone:
            return GrantStatus.INVALID, state
        return GrantStatus.CHANGED if state.changed_s <= ran_s else GrantStatus.VALID, state


def credential_of(job: Job, error: Exception | None) -> RefusedCredential | None:
    """Return the credential that was refused in a run of *job* that raised *error*, or None."""
    return refused_credential(error, tenant=job.tenant_id, provider=job.provider, group=job.group_key)


def with_connection(outcome: Outcome, connection_id: UUID | None) -> Outcome:
    """Return *outcome*; one that makes a dead letter names the connection there, if it is known."""
    if connection_id is None or not isinstance(outcome, Discarded):
        return outcome
    return replace(outcome, connection_id=connection_id)
