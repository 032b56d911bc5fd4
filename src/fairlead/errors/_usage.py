"""Errors of a wrong call."""

from __future__ import annotations

from fairlead.errors._base import FairleadError


class UsageError(FairleadError):
    """The call itself is wrong."""

    code = "usage_error"
    http_status = 400


class InvalidInputError(UsageError):
    """A name, argument or file is invalid. Nothing was changed."""

    code = "invalid_input"
    http_status = 422
    category = "permanent_request"
    default_hint = "correct what the message names, and try again"


class NotFoundError(UsageError):
    """The connection, job or entry does not exist."""

    code = "not_found"
    http_status = 404
    default_hint = "list what there is with `fairlead connections list`"


class ProviderNotFoundError(UsageError):
    """No provider profile has this name."""

    code = "provider_not_found"
    http_status = 404
    category = "permanent_config"
    default_hint = "see `fairlead providers list`, or add your profile file to the providers folder"


class JobFailedError(UsageError):
    """The job was cancelled or discarded, so it has no result."""

    code = "job_failed"
    http_status = 424
    category = "permanent_request"
    default_hint = "see `fairlead jobs show` and `fairlead dlq list`"


class SupersededError(UsageError):
    """A process that no longer owns the row tried to write it. The newer state stays."""

    code = "superseded"
    http_status = 409
    default_hint = "nothing to do: the newer owner's result counts"
