"""The settings of a connection for its limits; what they omit is as in the profile of its provider.

Spec: G4, K2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.limit import MAX_BUCKETS, MAX_CLASSES, MAX_SLOTS, Degraded
from fairlead.policy.providers.profile_limits import CallLimitConfig
from fairlead.policy.providers.profile_parts import ConfigTable, Key, Seconds

Opening = Annotated[Seconds, Field(le=600)]
Slots = Annotated[int, Field(strict=True, ge=1, le=MAX_SLOTS)]


class ConnectionLimits(ConfigTable):
    """The settings of a connection for the gate."""

    concurrency_limit: Slots | None = Field(
        None, description="Calls that may be in flight at once. Default that of the profile."
    )
    calls: dict[Key, CallLimitConfig] = Field(
        default_factory=dict,
        max_length=MAX_BUCKETS,
        description="Rate limits by name, which replace those of the profile.",
    )
    priority_classes: int = Field(
        1,
        strict=True,
        ge=1,
        le=MAX_CLASSES,
        description="Number of priority classes of calls; 1 is served first. Default 1.",
    )
    minimum_slots: dict[int, Slots] = Field(
        default_factory=dict, description="Slots reserved for a priority class."
    )
    tenant_slots: Slots | None = Field(
        None, description="Slots that the tenant may use in all. Default unlimited."
    )
    max_wait_s: Seconds = Field(
        300.0, description="A call that has waited for so long is served first. Default 300."
    )
    degraded_mode: Degraded = Field(
        Degraded.LOCAL_SHARE, description="What calls do while Redis is unavailable."
    )
    breaker_failures: int = Field(
        10,
        strict=True,
        ge=1,
        le=10_000,
        description="Consecutive failures that open the breaker. Default 10.",
    )
    breaker_open_s: Opening = Field(
        60.0, description="Time until the first probe; doubles up to 600. Default 60."
    )
    bulk_operations: Slots | None = Field(
        None, description="Bulk operations that may run at once. Default that of the profile."
    )
    observe: bool = Field(
        False, strict=True, description="Only record what the gate would refuse. Default false."
    )

    @model_validator(mode="after")
    def _minimum_fits(self) -> Self:
        if self.minimum_slots and sum(self.minimum_slots.values()) > (self.concurrency_limit or 0):
            raise ValueError("minimum_slots is more than concurrency_limit")
        if any(not 1 <= number <= self.priority_classes for number in self.minimum_slots):
            raise ValueError("minimum_slots names a class that priority_classes does not have")
        return self


def limits_of(settings: Mapping[str, object], *, tenant: str, provider: str) -> ConnectionLimits:
    """Return the settings of a connection for the gate.

    Args:
        settings: All settings of the connection; those about other things are ignored.
        tenant: The tenant, for errors.
        provider: The provider, for errors.

    Raises:
        InvalidConfigError: A setting is not valid.
    """
    limit_settings = {name: settings[name] for name in ConnectionLimits.model_fields if name in settings}
    try:
        return ConnectionLimits.model_validate(limit_settings)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"]) or "settings"
        problem = first["msg"].removeprefix("Value error, ")
        raise InvalidConfigError(
            f"the settings of the connection are not valid: {path}: {problem}",
            tenant=tenant,
            provider=provider,
            hint="change or remove it: `fairlead connections set`",
        ) from None
