"""Overrides: manual changes of the gate in an emergency. Spec: G6, G8, G12.

    isolated   calls are refused, before any other check
    disabled   no limit is applied; ended at once, or step by step for a growing share of the connections
    degraded   each process uses its share of the limits, although Redis is available

An override covers one connection, one provider or everything. If several cover a call, isolated has precedence
over disabled, and disabled over degraded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from fairlead.errors import InvalidInputError
from fairlead.policy.text.names import check_label, check_name, check_tenant, shown

STEPS = (0.1, 0.25, 0.5, 1.0)
"""The shares of connections with limits in force again, step by step."""
MAX_REASON_BYTES = 500


class OverrideKind(StrEnum):
    """What an override changes."""

    ISOLATED = "isolated"
    DISABLED = "disabled"
    DEGRADED = "degraded"


@dataclass(frozen=True, slots=True)
class OverrideScope:
    """The calls that an override covers: all, those of *provider*, or those of one connection of *tenant* there."""

    tenant: str | None = None
    provider: str | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        """Check that it is one of the three.

        Raises:
            InvalidInputError: It is not.
        """
        names = (self.tenant is not None, self.provider is not None, self.account is not None)
        if names not in ((False, False, False), (False, True, False), (True, True, True)):
            raise InvalidInputError(
                "an override covers everything, one provider, or one connection",
                tenant=self.tenant,
                hint="name the provider, or tenant, provider and account",
            )
        if self.tenant is not None:
            check_tenant(self.tenant)
        for noun, name in (("provider", self.provider), ("account", self.account)):
            if name is not None:
                check_name(noun, name, tenant=self.tenant)

    @property
    def is_connection(self) -> bool:
        """True for one connection."""
        return self.tenant is not None

    @property
    def names(self) -> Names:
        """The names as ``scopes_covering`` returns them."""
        return self.tenant or "", self.provider or "", self.account or ""

    def __str__(self) -> str:
        if self.provider is None:
            return "everything"
        if self.tenant is None:
            return f"provider {shown(self.provider)}"
        return f"{shown(self.provider)}/{shown(self.account)} of tenant {shown(self.tenant)}"


EVERYTHING = OverrideScope()

Names = tuple[str, str, str]
"""Tenant, provider and account; "" for each that a scope does not name."""


def scopes_covering(tenant: str, provider: str, account: str) -> tuple[Names, Names, Names]:
    """Return the names of the scopes that cover one connection, the widest first."""
    return ("", "", ""), ("", provider, ""), (tenant, provider, account)


def rollout_share(age_s: float, every_s: float, steps: Sequence[float] = STEPS) -> float:
    """Return the share of connections with limits in force, *age_s* after the roll-out began.

    Each of *steps* lasts *every_s*, and the last one for good.

    >>> [rollout_share(age_s, 60) for age_s in (0, 59, 60, 150, 180, 9999)]
    [0.1, 0.1, 0.25, 0.5, 1.0, 1.0]
    """
    return steps[min(max(0, int(age_s // every_s)), len(steps) - 1)]


def rollout_position(tenant: str, provider: str, account: str) -> float:
    """Return a stable number in [0, 1) for a connection: its limits are in force once the share is larger."""
    digest = blake2b(digest_size=8)
    for name in (tenant, provider, account):
        raw = name.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return float(int.from_bytes(digest.digest(), "big") >> 11) / 2**53


def check_reason(reason: str) -> str:
    """Return *reason*.

    Raises:
        InvalidInputError: It is empty or too long.
    """
    if not reason.strip():
        raise InvalidInputError(
            "an override without a reason", hint="give the reason in one sentence; operators read it later"
        )
    return check_label("reason", reason, MAX_REASON_BYTES)
