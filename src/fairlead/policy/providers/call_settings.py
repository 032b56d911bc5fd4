"""How calls of a connection are made, as its provider's profile and its own settings say (K2).

    ``[client]`` of the profile  <  settings of the connection  <  what a call says itself

A level says what it wants to say; all else is as the level below has it.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fairlead.policy.failures.strategy import Strategy, StrategyName
from fairlead.policy.providers.origin import HOST_FORM
from fairlead.policy.providers.pagination import Pages
from fairlead.policy.providers.pattern import MAX_ATTEMPTS, Delay, Pattern, in_order
from fairlead.policy.providers.profile_parts import Hour, Key, Table

DEADLINE_S = 60.0
INLINE_WAIT_S = 2.0
"""The longest wait that a call spends inside of a job, unless its connection says otherwise (DEFAULTS §3)."""
CallHost = Annotated[str, Field(strict=True, max_length=260, pattern=HOST_FORM)]


class CallDefaults(Table):
    """What every level may say."""

    strategy: StrategyName = Field(
        default=StrategyName.EXPONENTIAL,
        description="For failures of network and server that no pattern knows. Default exponential.",
    )
    max_retries: int = Field(
        default=3,
        strict=True,
        ge=0,
        le=MAX_ATTEMPTS,
        description="Tries after the first, whatever a pattern says; 0: none. Default 3, or as patterns say.",
    )
    initial_delay_s: Hour = Field(default=1.0, description="First delay. Default 1.")
    max_delay_s: Hour = Field(default=30.0, description="Longest delay. Default 30.")
    delays_s: tuple[Delay, ...] = Field(
        default=(), max_length=MAX_ATTEMPTS, description="Delays of the strategy custom. Default none."
    )
    deadline_s: Hour = Field(
        default=DEADLINE_S, description="For a call with its waits and retries. Default 60."
    )
    inline_wait_s: float = Field(
        default=INLINE_WAIT_S,
        strict=True,
        ge=0,
        le=60,
        allow_inf_nan=False,
        description="The longest wait that a call spends inside of a job; after a longer one the job comes "
        "back. 0: none. Default 2.",
    )

    @model_validator(mode="after")
    def _delays_fit(self) -> Self:
        try:
            self.as_strategy()
        except ValueError as error:
            raise ValueError(str(error).partition(" hint: ")[0]) from None
        return self

    @property
    def most_retries(self) -> int:
        """Tries after the first that no pattern may exceed."""
        return self.max_retries if "max_retries" in self.model_fields_set else MAX_ATTEMPTS

    def as_strategy(self) -> Strategy:
        """How to go on where no pattern says."""
        return Strategy(
            self.strategy, base_s=self.initial_delay_s, cap_s=self.max_delay_s, delays_s=self.delays_s
        )


class CallSettings(CallDefaults):
    """The settings of one connection that concern its calls."""

    patterns: tuple[Pattern, ...] = Field(default=(), description="Rules over the provider's. Default none.")
    pages: dict[Key, Pages] = Field(
        default_factory=dict,
        max_length=32,
        description="How an API of the provider hands out lists, by its name. Default as the profile has it.",
    )
    hosts: tuple[CallHost, ...] = Field(
        default=(),
        max_length=32,
        description="Hosts besides the provider's that calls, and so the credential, may go to: "
        "`files.example.com`, or `*.example.com` for all below it. Default none.",
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        in_order(self.patterns)
        return self
