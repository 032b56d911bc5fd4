"""What the tests that were run say of each control."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.security.checklist import CHECKLIST, Control

Outcomes = Mapping[str, str]
"""passed, failed or skipped, by the id of a test."""


def verdict(control: Control, outcomes: Outcomes) -> str:
    """In words. BROKEN and NOT SHOWN are failures."""
    if not control.tests:
        return f"absent: {control.absent}"
    counts = Counter(
        outcome for test, outcome in outcomes.items() if any(_is(test, name) for name in control.node_ids)
    )
    total = counts.total()
    if counts["failed"]:
        return f"BROKEN: {counts['failed']} of {_tests(total)} failed"
    if not counts["passed"]:
        return "NOT SHOWN: every test was skipped" if total else "NOT SHOWN: no test was run"
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    return f"holds ({_tests(counts['passed'])}{skipped})"


def table(outcomes: Outcomes, figures: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """A line for each control, with the figures that were told of it."""
    for control in CHECKLIST:
        yield f"{control.id}  {verdict(control, outcomes)}"
        if control.id in figures:
            told = figures[control.id]
            yield "     " + ", ".join(f"{name} {value}" for name, value in told.items() if name != "id")


def _is(test: str, name: str) -> bool:
    """Whether the test with id *test* is what *name* of the checklist means."""
    plain = test.partition("[")[0]
    return plain == name or plain.partition("::")[0] == name


def _tests(count: int) -> str:
    return f"{count} test" if count == 1 else f"{count} tests"
