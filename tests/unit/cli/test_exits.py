"""Which error ends a command with which code."""

from __future__ import annotations

import pytest

from fairlead import errors
from fairlead.cli.kit.exits import Exit, exit_code

TABLE = {
    "FairleadError": 1,
    "RefusedError": 75,
    "RateLimitedError": 75,
    "RefreshInProgressError": 75,
    "EndpointUnavailableError": 75,
    "EndpointPausedError": 78,
    "NotSentError": 75,
    "LimitExceededError": 75,
    "BulkLimitReachedError": 75,
    "BulkStillRunningError": 75,
    "LimiterUnavailableError": 75,
    "MasterKeyElsewhereError": 75,
    "SlotLostError": 75,
    "ReauthRequiredError": 1,
    "NoRefreshTokenError": 1,
    "AccountMismatchError": 1,
    "DeadlineExceededError": 75,
    "FailedError": 1,
    "ResponseDecodingError": 1,
    "CallFailedError": 1,
    "TransientFailureError": 75,
    "IssuerClockError": 75,
    "OutcomeUnknownError": 75,
    "RequestRejectedError": 1,
    "UsageError": 1,
    "JobFailedError": 1,
    "JobNotFinishedError": 75,
    "InvalidInputError": 2,
    "NotFoundError": 1,
    "ProviderNotFoundError": 1,
    "SupersededError": 1,
    "SetupError": 78,
    "InvalidConfigError": 78,
    "MasterKeyMissingError": 78,
    "MasterKeyMismatchError": 78,
    "CredentialUnreadableError": 78,
    "DependencyUnavailableError": 69,
    "MigrationRequiredError": 78,
}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_each_error_has_its_code(name: str) -> None:
    assert exit_code(getattr(errors, name)("what happened")) == TABLE[name]


def test_the_table_is_whole() -> None:
    ours = {kind.__name__ for kind in errors.all_errors() if kind.__module__ == "fairlead.errors"}
    assert ours == set(TABLE)


def test_permanent_failure_is_not_an_exit_for_later() -> None:
    never = errors.NotSentError("the certificate is not accepted", category="permanent_config", reason="tls")
    assert exit_code(never) is Exit.FAILED
    assert exit_code(errors.NotSentError("no such name", category="transient_network")) is Exit.LATER


def test_a_missing_right_is_told_apart() -> None:
    refused = errors.RequestRejectedError("scope missing", category="permanent_permission")
    assert exit_code(refused) == Exit.FORBIDDEN
