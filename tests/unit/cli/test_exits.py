"""Which error ends a command with which code."""

from __future__ import annotations

import pytest

from fairlead import errors
from fairlead.cli.kit.exits import Exit, exit_of

TABLE = {
    "FairleadError": 1,
    "Refused": 75,
    "RateLimited": 75,
    "RefreshInProgress": 75,
    "EndpointUnavailable": 75,
    "EndpointPaused": 78,
    "NotSent": 75,
    "GateClosed": 75,
    "BulkBusy": 75,
    "BulkUnfinished": 75,
    "GateUnavailable": 75,
    "MasterKeyElsewhereError": 75,
    "SlotLost": 75,
    "ReauthRequired": 1,
    "NoRefreshToken": 1,
    "AccountMismatch": 1,
    "DeadlineTooShort": 75,
    "Failed": 1,
    "AnswerUnreadable": 1,
    "CallFailed": 1,
    "TransientFailure": 75,
    "IssuerClockError": 75,
    "OutcomeUnknown": 75,
    "RequestRejected": 1,
    "CallerError": 1,
    "JobFailed": 1,
    "JobUnfinished": 75,
    "InputInvalid": 2,
    "NotFound": 1,
    "ProviderNotFound": 1,
    "StaleWrite": 1,
    "SetupError": 78,
    "ConfigInvalid": 78,
    "KeyMissing": 78,
    "KeyWrong": 78,
    "CredentialUnreadable": 78,
    "DependencyUnavailable": 69,
    "MigrationNeeded": 78,
}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_each_error_has_its_code(name: str) -> None:
    assert exit_of(getattr(errors, name)("what happened")) == TABLE[name]


def test_the_table_is_whole() -> None:
    ours = {kind.__name__ for kind in errors.all_errors() if kind.__module__ == "fairlead.errors"}
    assert ours == set(TABLE)


def test_what_a_further_try_does_not_change_is_not_for_later() -> None:
    never = errors.NotSent("the certificate is not accepted", category="permanent_config", reason="tls")
    assert exit_of(never) is Exit.FAILED
    assert exit_of(errors.NotSent("no such name", category="transient_network")) is Exit.LATER


def test_a_missing_right_is_told_apart() -> None:
    refused = errors.RequestRejected("scope missing", category="permanent_permission")
    assert exit_of(refused) == Exit.FORBIDDEN
