"""Tools for tests of token code, yours and ours: a rude issuer, its ledger, a clock that obeys."""

from __future__ import annotations

from fairlead.testing.clock import ManualClock
from fairlead.testing.issuer import Issuer, IssuerConfig, IssuerProcess, ProviderConfig, Quirk, Rule
from fairlead.testing.ledger import Ledger, Verdict, judge, read_ledger

__all__ = [
    "Issuer",
    "IssuerConfig",
    "IssuerProcess",
    "Ledger",
    "ManualClock",
    "ProviderConfig",
    "Quirk",
    "Rule",
    "Verdict",
    "judge",
    "read_ledger",
]
