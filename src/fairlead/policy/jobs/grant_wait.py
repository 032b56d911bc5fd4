"""Decide what becomes of a job whose credential its provider refused, by what is known of the grant.

| the grant | the job |
| --- | --- |
| gone | waits for a new one: in its held group if that is the connection's, else it looks again later |
| given, or valid again, while the job ran | runs again at once |
| cannot be looked up now | looks again later |
| not known here, and the error says that it is gone | as if it were gone |
| fine | has failed: a dead letter, which is replayed once there is a new grant |

No wait burns an attempt. All but the last row are counted, and bounded by ``MOST_WAITS``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fairlead.errors import CallFailedError, FairleadError, NoRefreshTokenError, ReauthRequiredError
from fairlead.policy.failures.backoff import nominal_delay_s
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.job import MOST_WAITS, Snooze
from fairlead.policy.text.names import connection_group

NEEDS_REAUTH = "needs_reauth"
"""The reason for which work waits for a new grant."""
GRANT_LOOK_S, GRANT_LOOK_MOST_S = 5.0, 900.0
"""The first and the longest wait of a job that is not held with its group."""
CHANGED_WAIT_S = 1.0


class Grant(Enum):
    """What is known of the grant of a connection after a run that was refused."""

    GONE = "gone"
    CHANGED = "changed"
    """It is fine, and was given or became valid again while the job ran."""
    FINE = "fine"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"
    """Nothing says which connection it is, or there is none of that name."""


@dataclass(frozen=True, slots=True)
class RefusedCredential:
    """The connection whose credential was refused; *says_gone*: the error says that its grant is gone."""

    tenant: str
    provider: str
    account: str
    says_gone: bool = False

    @property
    def group(self) -> str:
        """The group that is held for it; empty where the connection is not known."""
        return connection_group(self.provider, self.account) if self.provider and self.account else ""


def refused_credential(
    error: Exception | None, *, tenant: str, provider: str | None, group: str
) -> RefusedCredential | None:
    """Return whose credential *error* says was refused; None if it says something else.

    What the error does not name is taken from the job.

    Args:
        error: What left the handler; None: the handler returned RequireReauth.
        tenant: Tenant of the job.
        provider: Provider of the job.
        group: Group of the job.
    """
    found = None
    if error is not None:
        found = _refusal(error)
        if found is None:
            return None
    tenant = getattr(found, "tenant", None) or tenant
    provider = getattr(found, "provider", None) or provider or ""
    account = getattr(found, "account", None) or _account_of(group, provider)
    says_gone = isinstance(found, ReauthRequiredError) and not isinstance(found, NoRefreshTokenError)
    return RefusedCredential(tenant, provider, account, says_gone)


def grant_wait(
    refused: RefusedCredential, grant: Grant, *, tenant: str, group: str, waits: int
) -> Snooze | None:
    """Return how a job of *tenant* and *group* waits after *waits* counted ones; None: its run has failed."""
    if waits >= MOST_WAITS:
        return None
    if grant is Grant.CHANGED:
        return Snooze(CHANGED_WAIT_S, "there is a new grant", counted=True)
    if grant is Grant.FINE or (grant is Grant.UNKNOWN and not refused.says_gone):
        return None
    is_same_group = bool(refused.group) and (tenant, group) == (refused.tenant, refused.group)
    delay_s = nominal_delay_s(waits, base_s=GRANT_LOOK_S, cap_s=GRANT_LOOK_MOST_S)
    return Snooze(
        delay_s, NEEDS_REAUTH, in_place=is_same_group and grant is not Grant.UNREADABLE, counted=True
    )


def _refusal(error: Exception) -> FairleadError | None:
    """Return the error of a refused credential; of a group only where it is nothing else."""
    leaves = list(_leaves(error))
    if not leaves or not all(_is_refusal(leaf) for leaf in leaves):
        return None
    first = leaves[0]
    assert isinstance(first, FairleadError)
    return first


def _is_refusal(error: Exception) -> bool:
    if isinstance(error, CallFailedError):
        is_safe = error.idempotent or not error.may_have_acted
        return error.category == Category.PERMANENT_AUTH and is_safe
    return isinstance(error, ReauthRequiredError)


def _leaves(error: Exception) -> Iterator[Exception]:
    if not isinstance(error, ExceptionGroup):
        yield error
        return
    for inner in error.exceptions:
        yield from _leaves(inner)


def _account_of(group: str, provider: str) -> str:
    prefix = connection_group(provider, "")
    return group.removeprefix(prefix) if provider and group.startswith(prefix) else ""
