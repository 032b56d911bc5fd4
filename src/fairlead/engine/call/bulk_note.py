"""Where a job keeps the token of its bulk operation between two runs."""

from __future__ import annotations

from contextlib import suppress

from fairlead.engine.handler import current_job
from fairlead.errors import InputInvalid
from fairlead.policy.gate.bulk_token import parse_token
from fairlead.policy.gate.key import digest


class BulkNote:
    """What a job saves of an operation for its next run: the token, until its block has ended well."""

    def __init__(self, *named: str) -> None:
        self._context = current_job.get()
        self._name = f"bulk.{digest(named)}"

    @property
    def token(self) -> str | None:
        """Of an earlier block."""
        saved = None if self._context is None else self._context.saved.get(self._name)
        return saved if isinstance(saved, str) and parse_token(saved) else None

    def keep(self, token: str | None) -> None:
        """For the next run; None: it has nothing to go on with."""
        if self._context is not None and (token or self._name in self._context.saved):
            with suppress(InputInvalid):  # args so large leave no room: the vendor's list will do
                self._context.save(self._name, token)
