"""What becomes of a job whose credential was refused, by what is known of the grant."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.errors import (
    AccountMismatchError,
    CallFailedError,
    NoRefreshTokenError,
    RateLimitedError,
    ReauthRequiredError,
)
from fairlead.policy.jobs.grant_wait import GrantStatus, RefusedCredential, grant_wait, refused_credential
from fairlead.policy.jobs.job import Snooze

XERO = RefusedCredential("acme", "xero", "default")
SAYS_GONE = RefusedCredential("acme", "xero", "default", says_gone=True)


def refusal(error: Exception | None, **job: Any) -> RefusedCredential | None:
    return refused_credential(error, **{"tenant": "acme", "provider": "xero", "group": "xero/two", **job})


def failed(**fields: Any) -> CallFailedError:
    error = CallFailedError(
        "401", tenant="acme", provider="xero", category="permanent_auth", may_have_acted=False
    )
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def wait(
    grant: GrantStatus, *, refused: RefusedCredential = XERO, group: str = "xero/default", waits: int = 0
):
    return grant_wait(refused, grant, tenant="acme", group=group, waits=waits)


def test_an_error_names_the_connection_and_the_job_says_the_rest() -> None:
    error = ReauthRequiredError("gone", tenant="acme", provider="netsuite")
    assert refusal(error) == RefusedCredential("acme", "netsuite", "", says_gone=True)
    error.account = "eu"
    assert refusal(error) == RefusedCredential("acme", "netsuite", "eu", says_gone=True)
    assert refusal(failed()) == RefusedCredential("acme", "xero", "two")
    assert refusal(None) == RefusedCredential("acme", "xero", "two"), "what a handler returned"
    assert refusal(None, group="mine") == RefusedCredential("acme", "xero", "")
    assert refusal(None, provider=None, group="") == RefusedCredential("acme", "", "")


def test_only_the_loss_of_a_grant_says_that_it_is_gone() -> None:
    assert [bool(refusal(error) and refusal(error).says_gone) for error in (
        ReauthRequiredError("gone"), AccountMismatchError("other"), NoRefreshTokenError("key"), failed()
    )] == [True, True, False, False]  # fmt: skip


def test_other_failure_is_no_refused_credential() -> None:
    assert refusal(RateLimitedError("wait")) is None
    assert refusal(KeyError("x")) is None
    assert refusal(failed(category="permanent_permission")) is None
    assert refusal(failed(may_have_acted=True, idempotent=False)) is None, "a run must not repeat it"
    assert refusal(ExceptionGroup("", [ReauthRequiredError("gone"), KeyError("x")])) is None
    assert refusal(ExceptionGroup("", [ExceptionGroup("", [failed()])])) is not None


@pytest.mark.parametrize("says_gone", [True, False])
def test_work_waits_for_a_gone_grant_and_keeps_its_place_in_its_connections_group(says_gone: bool) -> None:
    refused = SAYS_GONE if says_gone else XERO
    assert wait(GrantStatus.INVALID, refused=refused) == Snooze(
        5.0, "needs_reauth", in_place=True, counted=True
    )
    other = wait(GrantStatus.INVALID, refused=refused, group="nightly")
    assert other == Snooze(5.0, "needs_reauth", in_place=False, counted=True)
    late = wait(GrantStatus.INVALID, refused=refused, group="nightly", waits=59)
    assert late is not None
    assert late.delay_s == 900


def test_a_run_that_met_the_old_grant_is_made_again_at_once() -> None:
    assert wait(GrantStatus.CHANGED) == Snooze(1.0, "there is a new grant", in_place=False, counted=True)


def test_where_the_grant_is_fine_the_run_has_failed() -> None:
    assert wait(GrantStatus.VALID) is None
    assert wait(GrantStatus.VALID, refused=SAYS_GONE) is None


def test_unknown_grant_is_judged_by_the_error() -> None:
    assert wait(GrantStatus.UNKNOWN) is None
    assert wait(GrantStatus.UNKNOWN, refused=SAYS_GONE) is not None
    unreadable = wait(GrantStatus.UNREADABLE)
    assert unreadable is not None
    assert not unreadable.in_place


def test_every_wait_has_a_bound() -> None:
    assert [wait(grant, refused=SAYS_GONE, waits=60) for grant in GrantStatus] == [None] * len(GrantStatus)
