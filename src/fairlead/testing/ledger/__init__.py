"""Read and judge the ledger of the test issuer, which records what the provider's side saw.

    verdict = judge(read_ledger(path))
    assert not verdict.violations and verdict.burnt == 0

``fairlead.testing.ledger.verdict`` describes the rules.
"""

from __future__ import annotations

from fairlead.testing.ledger.history import Burn, GenerationCount, LedgerRotation
from fairlead.testing.ledger.lines import Ledger, LedgerEntry, Post, parse_ledger, posts_of, read_ledger
from fairlead.testing.ledger.verdict import LedgerVerdict, judge

__all__ = [
    "Burn",
    "GenerationCount",
    "Ledger",
    "LedgerEntry",
    "LedgerRotation",
    "LedgerVerdict",
    "Post",
    "judge",
    "parse_ledger",
    "posts_of",
    "read_ledger",
]
