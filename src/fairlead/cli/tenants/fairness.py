"""How a tenant fares, as the command line tells it (Q6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.cli.kit.output import Record

if TYPE_CHECKING:
    from fairlead.engine.ports import TenantTurn

TURNS = (
    "tenant",
    "queue",
    "processed",
    "running",
    "max_running",
    "waiting",
    "waits_s",
    "ready_lanes",
    "parked_lanes",
    "consecutive",
    "rounds_without_service",
    "current_priority",
    "weight",
)
"""All there is."""
WAITING = ("tenant", "queue", "running", "max_running", "waiting", "waits_s", "current_priority")
"""What matters at a glance."""


def turn_record(turn: TenantTurn) -> Record:
    """A tenant's turn as JSON has it."""
    return {
        "tenant": turn.tenant_id,
        "queue": turn.queue,
        "processed": turn.processed,
        "running": turn.running,
        "max_running": turn.max_running,
        "waiting": turn.waiting,
        "waits_s": turn.waits_s,
        "ready_lanes": turn.ready_lanes,
        "parked_lanes": turn.parked_lanes,
        "consecutive": turn.consecutive,
        "rounds_without_service": turn.rounds_without_service,
        "current_priority": turn.current_priority,
        "weight": turn.weight,
    }
