"""Rows of the view credential_detail as the values of the ports."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.adapters.postgres.driver import Row
from fairlead.engine.ports import (
    Connection,
    ConnectionKey,
    Credential,
    DueConnection,
    LearnedSlots,
    Rotation,
    Sealed,
)


def named_columns(keys: Sequence[ConnectionKey]) -> dict[str, object]:
    """Return *keys* as the parameters of statements that read connections by name."""
    return {
        "tenants": [key.tenant for key in keys],
        "providers": [key.provider for key in keys],
        "accounts": [key.account for key in keys],
    }


def is_asked_for(row: Row, keys: Sequence[ConnectionKey]) -> bool:
    """Return whether *row* is the connection at its position in *keys*.

    Row security does not separate the tenants of one batch, so each row is compared with its request.
    """
    key: ConnectionKey = keys[row["ord"] - 1]
    return key == (row["tenant_id"], row["provider"], row["account"])


def connection_of(
    row: Row,
    learned_limits: Mapping[str, tuple[float, float]] | None = None,
    existed_s: float = math.inf,
    slots: LearnedSlots | None = None,
) -> Connection:
    """Return the connection in a row."""
    return Connection(
        connection_id=row["connection_id"],
        key=ConnectionKey(row["tenant_id"], row["provider"], row["account"]),
        variant=row["variant"],
        account_id=row["account_id"],
        client_id=row["client_id"],
        endpoint=_object(row["endpoint"]),
        settings=_object(row["settings"]),
        version=row["version"],
        learned_limits=learned_limits or {},
        existed_s=existed_s,
        learned_slots=slots,
    )


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object in *text*, which mostly has no members."""
    return {} if text == "{}" else json.loads(text)


def credential_of(row: Row) -> Credential:
    """Return the credential in a row of credential_detail."""
    return Credential(
        connection=connection_of(row),
        state=row["state"],
        state_reason=row["state_reason"],
        generation=row["generation"],
        settled_epoch=row["settled_epoch"],
        sealed=Sealed(row["key_id"], row["sealed"]),
        refreshable=row["refreshable"],
        read_at=row["read_at"],
        expires_in_s=row["expires_in_s"],
        urgent_in_s=row["urgent_in_s"],
        critical_in_s=row["critical_in_s"],
        due_in_s=row["due_in_s"],
        refreshed_age_s=row["refreshed_age_s"],
        expires_at=row["expires_at"],
        rotation=None if row["attempt_id"] is None else _rotation_of(row),
        granted_at=row["granted_at"],
    )


def _rotation_of(row: Row) -> Rotation:
    return Rotation(
        attempt_id=row["attempt_id"],
        from_generation=row["from_generation"],
        epoch=row["epoch"],
        phase=row["phase"],
        session_id=row["session_id"],
        owner_lost=row["owner_lost"],
        expired=row["expired"],
        age_sent_s=row["age_sent_s"],
        age_last_sent_s=row["age_last_sent_s"],
        replays=row["replays"],
    )


def due_of(row: Row, priority: int) -> DueConnection:
    """Return the connection in a row of credential_due or refresh_attempt_unsettled."""
    columns = dict(row.items())
    return DueConnection(
        connection_id=row["connection_id"],
        key=ConnectionKey(row["tenant_id"], row["provider"], row["account"]),
        generation=row["generation"],
        priority=priority,
        refreshable=columns.get("refreshable", True),
        expired=columns.get("expired", False),
    )
