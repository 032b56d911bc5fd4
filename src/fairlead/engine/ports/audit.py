"""The audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from fairlead.engine.ports.values import Json


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One change that a person or a process made, without secrets.

    Attributes:
        act: The name of the change.
        actor: The person or process that made it.
        details: Values of the change that are safe to show.

    Spec: T13.
    """

    audit_id: UUID
    act: str
    actor: str
    tenant: str | None = None
    provider: str | None = None
    connection_id: UUID | None = None
    details: Mapping[str, Json] = field(default_factory=dict)


class AuditStore(Protocol):
    """The append-only audit trail."""

    async def append(self, records: Sequence[AuditRecord]) -> None:
        """Store *records*, all or none."""
        ...

    async def search(self, *, tenant: str | None, limit: int) -> list[tuple[datetime, AuditRecord]]:
        """Return the latest records of *tenant* (None: of all), each with the time at which it was stored."""
        ...
