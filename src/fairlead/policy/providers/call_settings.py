"""The settings of calls, from the profile of a provider and from the settings of a connection.

    defaults  <  ``[client]`` of the profile  <  settings of the connection  <  arguments of a call

Each level only needs to contain what differs from the levels before it. Spec: K2.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fairlead.policy.failures.strategy import Strategy, StrategyName
from fairlead.policy.providers.origin import HOST_FORM
from fairlead.policy.providers.pagination import PaginationConfig
from fairlead.policy.providers.pattern import MAX_ATTEMPTS, Delay, Pattern, sort_patterns
from fairlead.policy.providers.profile_parts import ConfigTable, Key, UpToOneHour

DEADLINE_S = 60.0
INLINE_WAIT_S = 2.0
"""Default of the longest wait that a call inside a job waits out."""
CallHost = Annotated[str, Field(strict=True, max_length=260, pattern=HOST_FORM)]


class CallDefaults(ConfigTable):
    """The settings of calls that a profile may set, in its table ``client``."""

    strategy: StrategyName = Field(
        default=StrategyName.EXPONENTIAL,
        description="Retry strategy for network and server failures that no pattern matches. Default "
        "exponential.",
    )
    max_retries: int = Field(
        default=3,
        strict=True,
        ge=0,
        le=MAX_ATTEMPTS,
        description="Most retries of a call, also if a pattern allows more; 0: none. "
        "Default 3, or as many as the pattern allows.",
    )
    initial_delay_s: UpToOneHour = Field(default=1.0, description="First retry delay. Default 1.")
    max_delay_s: UpToOneHour = Field(default=30.0, description="Longest retry delay. Default 30.")
    delays_s: tuple[Delay, ...] = Field(
        default=(), max_length=MAX_ATTEMPTS, description="Retry delays of the strategy custom. Default none."
    )
    deadline_s: UpToOneHour = Field(
        default=DEADLINE_S, description="Deadline of a call, waits and retries included. Default 60."
    )
    inline_wait_s: float = Field(
        default=INLINE_WAIT_S,
        strict=True,
        ge=0,
        le=60,
        allow_inf_nan=False,
        description="Longest wait that a call inside a job waits out; for a longer one the job is "
        "rescheduled. "
        "0: none. Default 2.",
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
        """The bound on the retries that a pattern may allow."""
        return self.max_retries if "max_retries" in self.model_fields_set else MAX_ATTEMPTS

    def as_strategy(self) -> Strategy:
        """Return the retry strategy for failures that no pattern matches."""
        return Strategy(
            self.strategy, base_s=self.initial_delay_s, cap_s=self.max_delay_s, delays_s=self.delays_s
        )


class CallSettings(CallDefaults):
    """The settings of a connection for its calls."""

    patterns: tuple[Pattern, ...] = Field(
        default=(),
        description="Rules that precede those of the profile. Default none.",
    )
    pages: dict[Key, PaginationConfig] = Field(
        default_factory=dict,
        max_length=32,
        description="Pagination of the provider's APIs, by API name. Default that of the profile.",
    )
    hosts: tuple[CallHost, ...] = Field(
        default=(),
        max_length=32,
        description="Additional hosts that calls, and so the credential, may go to: "
        "`files.example.com`, or `*.example.com` for all hosts below it. Default none.",
    )

    @model_validator(mode="after")
    def _check_patterns(self) -> Self:
        sort_patterns(self.patterns)
        return self
