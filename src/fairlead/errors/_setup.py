"""Errors of a wrong set-up."""

from __future__ import annotations

from fairlead.errors._base import FairleadError


class SetupError(FairleadError):
    """fairlead cannot work as it is set up."""

    code = "setup_error"


class InvalidConfigError(SetupError):
    """The settings are invalid. Nothing was started."""

    code = "invalid_config"
    category = "permanent_config"
    default_hint = "correct your settings named above; `fairlead doctor` checks them"


class MasterKeyMissingError(SetupError):
    """The process has no master key, or not the one that sealed this record. Data is untouched."""

    code = "master_key_missing"
    category = "permanent_config"
    default_hint = "set FAIRLEAD_MASTER_KEY or FAIRLEAD_MASTER_KEY_FILE to the key that sealed the data"


class MasterKeyMismatchError(SetupError):
    """The master key does not decrypt the data. Data is untouched."""

    code = "master_key_mismatch"
    category = "permanent_config"
    default_hint = "set FAIRLEAD_MASTER_KEY to the key that sealed the data; `fairlead vault verify` checks"


class CredentialUnreadableError(SetupError):
    """A sealed record was altered, or moved from another row. Data is untouched."""

    code = "credential_unreadable"
    category = "permanent_config"
    default_hint = "restore the row from a backup or reconnect this one account"


class DependencyUnavailableError(SetupError):
    """PostgreSQL, Redis or an optional package is unavailable."""

    code = "dependency_unavailable"
    retryable = True
    http_status = 503
    category = "transient_network"
    default_hint = "run `fairlead doctor`"


class MigrationRequiredError(SetupError):
    """The database schema is not the one that this version requires."""

    code = "migration_required"
    http_status = 503
    default_hint = "run `fairlead migrate`"
