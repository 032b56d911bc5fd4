"""Connections as JSON has them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.engine.tokens.connection_view import ConnectionView


def as_record(view: ConnectionView) -> dict[str, Any]:
    """Every field of *view*; none of them is secret."""
    return {field.name: getattr(view, field.name) for field in fields(view)}
