"""The record in which a job stores the token of its bulk operation between two runs."""

from __future__ import annotations

from contextlib import suppress

from fairlead.engine.jobs.handler import current_job
from fairlead.errors import InvalidInputError
from fairlead.policy.limits.bulk_token import parse_token
from fairlead.policy.limits.key import digest


class BulkNote:
    """The state that a job saves for its next run: the token, until the block has ended without an error."""

    def __init__(self, *parts: str) -> None:
        self._context = current_job.get()
        self._name = f"bulk.{digest(parts)}"

    @property
    def token(self) -> str | None:
        """The token of an earlier block."""
        saved = None if self._context is None else self._context.saved.get(self._name)
        return saved if isinstance(saved, str) and parse_token(saved) else None

    def save(self, token: str | None) -> None:
        """Save *token* for the next run; None removes it."""
        if self._context is not None and (token or self._name in self._context.saved):
            with suppress(
                InvalidInputError
            ):  # no space left in the args: the next run searches the vendor's list
                self._context.save(self._name, token)
