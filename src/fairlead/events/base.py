"""The base of all events, and the function that emits them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""

    name: ClassVar[str] = "event"
    level: ClassVar[str] = "info"


Emit = Callable[[Event], None]
"""Hands an event to its subscribers. Never raises and never waits."""
