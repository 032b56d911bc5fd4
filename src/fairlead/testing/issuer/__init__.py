"""An OAuth issuer for tests with six replay policies, all quirks of real providers, and a ledger."""

from __future__ import annotations

from fairlead.testing._kit.request_barrier import Hold, Hook, Moment
from fairlead.testing.issuer.app import Issuer
from fairlead.testing.issuer.config import (
    ConnectionConfig,
    IssuerConfig,
    ProviderConfig,
    Revocation,
    load,
)
from fairlead.testing.issuer.families import Policy
from fairlead.testing.issuer.issuer_process import IssuerProcess
from fairlead.testing.issuer.quirks import QUIRKS, Quirk, Rule
from fairlead.testing.issuer.state import IssuedGrant

__all__ = [
    "QUIRKS",
    "ConnectionConfig",
    "Hold",
    "Hook",
    "IssuedGrant",
    "Issuer",
    "IssuerConfig",
    "IssuerProcess",
    "Moment",
    "Policy",
    "ProviderConfig",
    "Quirk",
    "Revocation",
    "Rule",
    "load",
]
