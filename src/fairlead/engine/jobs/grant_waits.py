"""Makes jobs wait for a new grant after their credential was refused, if their connection needs one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol
from uuid import UUID

from fairlead.engine.jobs.group_holds import GroupHolds
from fairlead.engine.ports import ConnectionKey, Discarded, GrantState, Job, Outcome
from fairlead.policy.jobs.grant_wait import GrantStatus, RefusedCredential, grant_wait, refused_credential
from fairlead.policy.jobs.job import WAITS, RequireReauth, Retry
from fairlead.policy.jobs.job import Outcome as AnyOutcome


class GrantStore(Protocol):
    """The part of the CredentialStore that is needed after a run with a refused credential."""

    async def await_grant(self, key: ConnectionKey) -> GrantState | None:
        """Hold the connection's jobs if it needs a new grant, and return the state of its grant."""
        ...


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that ended by *error*, because *credential* was refused.

    Attributes:
        outcome: What to do if the grant is valid, so that a retry may succeed.
        error: The error that the handler raised.
        credential: The connection of the credential.
    """

    outcome: Retry
    error: Exception
    credential: RefusedCredential


RunEnd = AnyOutcome | RefusedRun
"""How a run ended, before its stored outcome is decided."""


class ResolvedEnd(NamedTuple):
    """How a run with a refused credential ended, after its grant was read.

    Attributes:
        run_end: A wait, or the end of the run unchanged.
        connection_id: The connection of the job, if known.
    """

    run_end: RunEnd
    connection_id: UUID | None


class GrantWaits:
    """The decision whether a job waits for a new grant.

    Args:
        grants: Reads the state of a grant. None: no job waits for one.
        holds: Holds the group of a job that waits.
    """

    def __init__(self, grants: GrantStore | None, holds: GroupHolds) -> None:
        self._grants = grants
        self._holds = holds

    async def resolve(self, job: Job, run_end: RefusedRun | RequireReauth, ran_s: float) -> ResolvedEnd:
        """Return how *job* waits for its grant, or *run_end* if waiting does not help.

        Args:
            job: The job that ran.
            run_end: How its run ended.
            ran_s: How long the run took. A grant that changed meanwhile may be valid on the next run.
        """
        credential = (
            run_end.credential if isinstance(run_end, RefusedRun) else refused_credential_in(job, None)
        )
        assert credential is not None
        grant, state = await self._read_grant(credential, ran_s)
        waits = job.streaks.get(WAITS, 0)
        wait = grant_wait(credential, grant, tenant=job.tenant_id, group=job.group_key, waits=waits)
        if wait is not None and wait.in_place and grant is not GrantStatus.INVALID:
            wait = await self._holds.hold_group(job, wait)
        is_of_tenant = credential.tenant == job.tenant_id
        return ResolvedEnd(
            wait or run_end, state.connection_id if state is not None and is_of_tenant else None
        )

    async def _read_grant(
        self, credential: RefusedCredential, ran_s: float
    ) -> tuple[GrantStatus, GrantState | None]:
        """Return the status of a grant, and its stored state if it could be read."""
        if self._grants is None or not credential.group:
            return GrantStatus.UNKNOWN, None
        key = ConnectionKey(credential.tenant, credential.provider, credential.account)
        try:
            state = await self._grants.await_grant(key)
        except Exception:  # noqa: BLE001 (the run has ended, and its outcome is written in any case)
            return GrantStatus.UNREADABLE, None
        if state is None:
            return GrantStatus.UNKNOWN, None
        if state.is_gone:
            return GrantStatus.INVALID, state
        return GrantStatus.CHANGED if state.changed_s <= ran_s else GrantStatus.VALID, state


def refused_credential_in(job: Job, error: Exception | None) -> RefusedCredential | None:
    """Return the credential that the provider refused, according to *error* of a run of *job*; else None."""
    return refused_credential(error, tenant=job.tenant_id, provider=job.provider, group=job.group_key)


def with_connection(outcome: Outcome, connection_id: UUID | None) -> Outcome:
    """Return *outcome*, with the connection for the dead letter if it is one that discards the job."""
    if connection_id is None or not isinstance(outcome, Discarded):
        return outcome
    return replace(outcome, connection_id=connection_id)
