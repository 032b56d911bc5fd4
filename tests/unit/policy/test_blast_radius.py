"""Every classification, outcome and error has a row that says whom it may stop (R50)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from fairlead import errors
from fairlead.policy.calls.blast_radius import (
    CALL,
    ERROR,
    QUORUM,
    TOKEN,
    LocalReach,
    Reach,
    Shared,
    of_error,
    token_row,
)
from fairlead.policy.calls.classify.verdict import LimitScope
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.job import outcome_of_exception
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.tokens import outcome as outcomes

NEVER = {
    "not_processed": {"transient_network"},
    "transient_failure": {"transient_rate_limit"},
}
"""Transient categories that `classify_token_response` gives no such outcome; a permanent one is always Rejected."""


def tree(kind: type[errors.FairleadError]) -> Iterator[type[errors.FairleadError]]:
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield below
            yield from tree(below)


def rows_of(kind: type[Any]) -> Iterator[str]:
    """The rows that outcomes of *kind* may need."""
    hints = get_type_hints(kind)
    of_answers = [c for c in Category if c is not Category.HANDLER_ERROR]
    categories = [c for c in of_answers if c.transient != (kind is outcomes.Rejected)]
    scopes = get_args(hints["scope"]) if get_origin(hints.get("scope")) is not None else [None]
    for category, scope in product(categories if "category" in hints else [None], scopes):
        outcome = object.__new__(kind)
        for name, value in (("category", category), ("scope", scope)):
            if name in hints:
                object.__setattr__(outcome, name, value)
        row = token_row(outcome)
        if category not in NEVER.get(row.partition(".")[0], set()) and (
            scope != "client" or category is Category.PERMANENT_CONFIG
        ):
            yield row


def test_each_outcome_of_a_token_request_has_a_row() -> None:
    needed = {row for kind in get_args(outcomes.TokenOutcome) for row in rows_of(kind)}
    assert needed == set(TOKEN)


def test_each_classification_of_a_call_has_a_row() -> None:
    assert set(CALL) == {*Category, *LimitScope, *DestinationHealth}


@pytest.mark.parametrize("table", [TOKEN, CALL, ERROR])
def test_nothing_shared_closes_by_one(table: Any) -> None:
    reaches: list[Reach] = [*table.values()]
    for reach in reaches:
        assert QUORUM > 1
        assert reach.shared not in reach.lifts


def lines() -> Iterator[str]:
    """The table as the page shows it."""
    names = {**{key: f"token: {key}" for key in TOKEN}, **{key: f"call: {key}" for key in CALL}}
    names |= {health: f"call, its host: {health.name.lower()}" for health in DestinationHealth}
    for key, reach in {**TOKEN, **CALL}.items():
        lifts = ", ".join(shared.value for shared in Shared if shared in reach.lifts)
        migrated = (
            ""
            if reach.shared is Shared.NOTHING
            else f"{reach.shared}, after {QUORUM}{' processes' * reach.by_process}"
        )
        cells = (names.get(key, key), reach.local, migrated, lifts)
        yield f"| {' | '.join(cell or '–' for cell in cells)} |"


def test_the_page_shows_the_table() -> None:
    page = Path("docs/explanation/blast-radius.md").read_text()
    assert [line for line in lines() if line not in page] == []


def test_a_job_waits_with_its_group_only_for_a_limit_of_its_connection() -> None:
    for kind in tree(errors.FairleadError):
        error = kind("no", retry_after_s=5.0)
        if isinstance(error, errors.RefusedError) and error.retryable:
            outcome = outcome_of_exception(error, draw=0.0)
            assert (
                outcome.in_place
                == (of_error(error).local is LocalReach.LIMIT)
                == (kind is errors.LimitExceededError)
            ), kind
