"""Decide what happens to a job with a refused credential, by the state of its grant.

| the grant | the job |
| --- | --- |
| gone | waits for a new one: in its held group if that is the connection's, else it checks again later |
| new, or valid again, since the run started | runs again at once |
| cannot be read now | checks again later |
| unknown, and the error says that it is gone | as if it were gone |
| valid | has failed: a dead letter, which is replayed once there is a new grant |

No wait uses up an attempt. All but the last row are counted, and bounded by ``MOST_WAITS``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from fairlead.errors import CallFailedError, FairleadError, NoRefreshTokenError, ReauthRequiredError
from fairlead.policy.failures.backoff import nominal_delay_s
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.job import MOST_WAITS, Snooze
from fairlead.policy.reasons.token_reasons import NEEDS_REAUTH
from fairlead.policy.text.names import connection_group

GRANT_CHECK_S, GRANT_CHECK_MAX_S = 5.0, 900.0
"""The first and the longest wait of a job that is not held with its group."""
CHANGED_WAIT_S = 1.0


class GrantStatus(Enum):
    """The state of a connection's grant after a run with a refused credential."""

    INVALID = "invalid"
    CHANGED = "changed"
    """It is valid, and is new or valid again since the run started."""
    VALID = "valid"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"
    """The connection is not known, or does not exist."""


@dataclass(frozen=True, slots=True)
class RefusedCredential:
    """The connection with the refused credential. *says_gone*: the error says that its grant is gone."""

    tenant: str
    provider: str
    account: str
    says_gone: bool = False

    @property
    def group(self) -> str:
        """The group that is held for it; empty if the connection is not known."""
        return connection_group(self.provider, self.account) if self.provider and self.account else ""


def refused_credential(
    error: Exception | None, *, tenant: str, provider: str | None, group: str
) -> RefusedCredential | None:
    """Return the credential that *error* reports as refused, or None.

    What the error does not name is taken from the job.

    Args:
        error: The handler's exception; None: the handler returned RequireReauth.
        tenant: Tenant of the job.
        provider: Provider of the job.
        group: Group of the job.
    """
    refusal = None
    if error is not None:
        refusal = _refusal(error)
        if refusal is None:
            return None
    tenant = getattr(refusal, "tenant", None) or tenant
    provider = getattr(refusal, "provider", None) or provider or ""
    account = getattr(refusal, "account", None) or _account_of(group, provider)
    says_gone = isinstance(refusal, ReauthRequiredError) and not isinstance(refusal, NoRefreshTokenError)
    return RefusedCredential(tenant, provider, account, says_gone)


def grant_wait(
    refused: RefusedCredential, grant: GrantStatus, *, tenant: str, group: str, waits: int
) -> Snooze | None:
    """Return how a job of *tenant* and *group* waits after *waits* counted ones; None: its run has failed."""
    if waits >= MOST_WAITS:
        return None
    if grant is GrantStatus.CHANGED:
        return Snooze(CHANGED_WAIT_S, "there is a new grant", counted=True)
    if grant is GrantStatus.VALID or (grant is GrantStatus.UNKNOWN and not refused.says_gone):
        return None
    # only then can the job wait in its group, which is held until there is a new grant
    is_same_group = bool(refused.group) and (tenant, group) == (refused.tenant, refused.group)
    delay_s = nominal_delay_s(waits, base_s=GRANT_CHECK_S, cap_s=GRANT_CHECK_MAX_S)
    return Snooze(
        delay_s,
        NEEDS_REAUTH.code,
        in_place=is_same_group and grant is not GrantStatus.UNREADABLE,
        counted=True,
    )


def _refusal(error: Exception) -> FairleadError | None:
    """Return the error of a refused credential. In a group of errors all must be such."""
    leaves = list(_leaves(error))
    if not leaves or not all(_is_refusal(leaf) for leaf in leaves):
        return None
    first = leaves[0]
    assert isinstance(first, FairleadError)
    return first


def _is_refusal(error: Exception) -> bool:
    """Return whether *error* reports a refused credential, and the job may run again."""
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
