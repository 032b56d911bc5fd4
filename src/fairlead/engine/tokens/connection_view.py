"""The public view of a connection, without secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import Credential


@dataclass(frozen=True, slots=True)
class ConnectionView:
    """A connection without its secrets."""

    connection_id: UUID
    tenant: str
    provider: str
    account: str
    variant: str | None
    account_id: str | None
    client_id: str
    state: str
    state_reason: str | None
    generation: int
    refreshable: bool
    expires_at: datetime | None
    expires_in_s: float | None
    due_in_s: float | None
    refreshing: str | None  # phase of the refresh under way


def view(credential: Credential) -> ConnectionView:
    """Return *credential* without its secrets."""
    connection = credential.connection
    return ConnectionView(
        connection_id=connection.connection_id,
        tenant=connection.key.tenant,
        provider=connection.key.provider,
        account=connection.key.account,
        variant=connection.variant,
        account_id=connection.account_id,
        client_id=connection.client_id,
        state=credential.state,
        state_reason=credential.state_reason,
        generation=credential.generation,
        refreshable=credential.refreshable,
        expires_at=credential.expires_at,
        expires_in_s=credential.expires_in_s,
        due_in_s=credential.due_in_s,
        refreshing=credential.rotation.phase if credential.rotation else None,
    )
