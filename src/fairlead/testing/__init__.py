"""Tools for your tests: jobs in memory, an OAuth issuer with quirks, its ledger, and a clock you advance."""

from __future__ import annotations

from fairlead.testing._kit.clock import ManualClock
from fairlead.testing.in_memory import MemoryFairlead
from fairlead.testing.issuer import Issuer, IssuerConfig, IssuerProcess, ProviderConfig, Quirk, Rule
from fairlead.testing.ledger import Ledger, LedgerVerdict, judge, read_ledger

__all__ = [
    "Issuer",
    "IssuerConfig",
    "IssuerProcess",
    "Ledger",
    "LedgerVerdict",
    "ManualClock",
    "MemoryFairlead",
    "ProviderConfig",
    "Quirk",
    "Rule",
    "judge",
    "read_ledger",
]
