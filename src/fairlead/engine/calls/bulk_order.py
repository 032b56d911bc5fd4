"""The order of a bulk operation: what to run, and how long to wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.engine.ports import ConnectionKey
from fairlead.policy.calls.bulk.protocol import BulkProtocol
from fairlead.policy.providers.call_settings import INLINE_WAIT_S

FOLLOW_S = 86_400.0
"""The longest time for which an operation is followed, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class BulkOrder:
    """A bulk operation to run.

    Attributes:
        retry_after_s: How long a job is rescheduled for if it finds the operation running.
        inline_wait_s: The longest wait inside a job.
    """

    key: ConnectionKey
    protocol: BulkProtocol
    kind: str
    version: str
    retry_after_s: float
    text: str = field(repr=False)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    token: str | None = None
    wait_s: float = 0.0
    deadline_s: float = FOLLOW_S
    inline_wait_s: float = INLINE_WAIT_S

    @property
    def identity(self) -> tuple[str, ...]:
        """What distinguishes it from other operations of the same job, which may serve several tenants."""
        return *self.key, self.kind, self.text, repr(sorted(self.variables.items()))
