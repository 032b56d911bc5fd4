"""Reads and judges the ledger of the test issuer: the truth of the other side.

    verdict = judge(read_ledger(path))
    assert not verdict.violations and verdict.burnt == 0

The rules of the judgement stand in ``fairlead.testing.ledger.verdict``.
"""

from __future__ import annotations

from fairlead.testing.ledger.history import Burn, GenerationCount, LedgerRotation
from fairlead.testing.ledger.lines import Ledger, LedgerEntry, Post, parse_ledger, posts_of, read_ledger
from fairlead.testing.ledger.verdict import Verdict, judge

__all__ = [
    "Burn",
    "GenerationCount",
    "Ledger",
    "LedgerEntry",
    "LedgerRotation",
    "Post",
    "Verdict",
    "judge",
    "parse_ledger",
    "posts_of",
    "read_ledger",
]
