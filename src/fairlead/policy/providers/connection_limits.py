"""What a connection's settings say of its limits; all else is as its provider's profile has it (G4, K2).

The settings of a connection hold more than this, and others read the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.limit import MAX_BUCKETS, MAX_CLASSES, MAX_SLOTS, Degraded
from fairlead.policy.providers.profile_limits import CallLimit
from fairlead.policy.providers.profile_parts import Key, Seconds, Table

Opening = Annotated[Seconds, Field(le=600)]
Slots = Annotated[int, Field(strict=True, ge=1, le=MAX_SLOTS)]


class ConnectionLimits(Table):
    """The settings of one connection that concern the gate."""

    concurrency_limit: Slots | None = Field(None, description="Calls in flight. Default the provider's.")
    calls: dict[Key, CallLimit] = Field(
        default_factory=dict, max_length=MAX_BUCKETS, description="Limits by name, over the provider's."
    )
    priority_classes: int = Field(
        1, strict=True, ge=1, le=MAX_CLASSES, description="Classes of calls, 1 first. Default 1: FIFO."
    )
    minimum_slots: dict[int, Slots] = Field(default_factory=dict, description="Slots kept for a class.")
    tenant_slots: Slots | None = Field(None, description="Slots of the tenant in all. Default no quota.")
    max_wait_s: Seconds = Field(300.0, description="Who waited so long goes first. Default 300.")
    degraded_mode: Degraded = Field(Degraded.LOCAL_SHARE, description="What to do while Redis is away.")
    breaker_failures: int = Field(10, strict=True, ge=1, le=10_000, description="In a row. Default 10.")
    breaker_open_s: Opening = Field(60.0, description="First opening; doubles to 600. Default 60.")
    bulk_operations: Slots | None = Field(None, description="That run at once. Default the provider's.")
    observe: bool = Field(False, strict=True, description="Decide and record, never block. Default false.")

    @model_validator(mode="after")
    def _minimum_fits(self) -> Self:
        if self.minimum_slots and sum(self.minimum_slots.values()) > (self.concurrency_limit or 0):
            raise ValueError("minimum_slots is more than concurrency_limit")
        if any(not 1 <= number <= self.priority_classes for number in self.minimum_slots):
            raise ValueError("minimum_slots names a class that priority_classes does not have")
        return self


def limits_of(settings: Mapping[str, object], *, tenant: str, provider: str) -> ConnectionLimits:
    """The part of *settings* that is about limits; InvalidConfigError where it is impossible."""
    known = {name: settings[name] for name in ConnectionLimits.model_fields if name in settings}
    try:
        return ConnectionLimits.model_validate(known)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "settings"
        problem = first["msg"].removeprefix("Value error, ")
        raise InvalidConfigError(
            f"the settings of the connection are not acceptable: {place}: {problem}",
            tenant=tenant,
            provider=provider,
            hint="give it another value, or take it away: `fairlead connections set`",
        ) from None
