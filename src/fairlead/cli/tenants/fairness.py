"""How tenants fare, as the command line shows it. Spec: Q6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.cli.kit.output import Record, fields_of

if TYPE_CHECKING:
    from fairlead.engine.ports import TenantTurn

_FIELDS = (
    "queue processed running max_running waiting waits_s ready_lanes parked_lanes consecutive"
    " rounds_without_service current_priority weight"
)
TURNS = ("tenant", *_FIELDS.split())
"""All columns."""
WAITING = ("tenant", "queue", "running", "max_running", "waiting", "waits_s", "current_priority")
"""The columns of an overview."""


def turn_record(turn: TenantTurn) -> Record:
    """Return a tenant's figures in one queue as a JSON record."""
    return fields_of(turn, f"tenant=tenant_id {_FIELDS}")
