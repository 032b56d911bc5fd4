"""What the tests that were run say of each control."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from tests.security.checklist import CHECKLIST, Control
from tools.results import ROOT, Line, base

Outcomes = Mapping[str, str]
"""passed, failed or skipped, by the id of a test; none of a test that was left out."""
HOLDS, ABSENT, BROKEN, NOT_SHOWN = "holds", "absent", "BROKEN", "NOT SHOWN"
NOT_RUN = f"{NOT_SHOWN}: no test was run"
WIDE = 60
"""So much is told of what a control asks for."""


def verdict(control: Control, outcomes: Outcomes) -> str:
    """In words; BROKEN and NOT SHOWN are failures. It holds if each of its tests was passed at least once."""
    if not control.tests:
        return f"{ABSENT}: {control.absent}"
    ours = {test: how for test, how in outcomes.items() if any(_is(test, name) for name in control.node_ids)}
    counts = Counter(ours.values())
    total = counts.total()
    if counts["failed"]:
        return f"{BROKEN}: {counts['failed']} of {_tests(total)} failed"
    if not counts["passed"]:
        return f"{NOT_SHOWN}: every test was skipped" if total else NOT_RUN
    if lacking := sorted(_named(control, ours) - {_plain(test) for test in ours if ours[test] == "passed"}):
        return f"{NOT_SHOWN}: {', '.join(lacking)}"
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    verdict_text = f"{HOLDS} ({_tests(counts['passed'])}{skipped})"
    return f"{verdict_text}; {ABSENT}: {control.absent}" if control.absent else verdict_text


def table(outcomes: Outcomes, figures: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """A line for each control, with the figures that were told of it."""
    for control in CHECKLIST:
        yield f"{control.id}  {control.what[:WIDE]:<{WIDE}}  {verdict(control, outcomes)}"
        for id, figure in figures.items():
            if base(id) == control.id:
                part = f"{id.removeprefix(control.id).lstrip('-')}: " if id != control.id else ""
                yield f"     {part}" + ", ".join(f"{name} {value}" for name, value in figure.items())


def summary(outcomes: Outcomes) -> str:
    """The last line: how many of each."""
    words = (HOLDS, ABSENT, BROKEN, NOT_SHOWN)
    verdict_lines = [verdict(control, outcomes) for control in CHECKLIST]
    holds_count, absent, broken, not_shown = (
        sum(line.startswith(word) for line in verdict_lines) for word in words
    )
    in_part = sum(line.startswith(HOLDS) and ABSENT in line for line in verdict_lines)
    return f"{holds_count} hold ({in_part} in part), {absent} absent, {broken} broken, {not_shown} not shown"


def withdrawn(lines: Sequence[Line], outcomes: Outcomes) -> list[Line]:
    """*lines* after the run: those of a control that is broken say so, and of one not shown none stays.

    Those of controls of which no test was run stay as they are.
    """
    lines_after: list[Line] = []
    verdicts = {control.id: verdict(control, outcomes) for control in CHECKLIST}
    for line in lines:
        verdict_text = verdicts.get(base(line["id"]), "")
        if verdict_text.startswith(BROKEN):
            broken = [*dict.fromkeys([*line.get("broken", ()), verdict_text])]
            lines_after.append({**line, "verdict": "broken", "broken": broken})
        elif verdict_text == NOT_RUN or not verdict_text.startswith(NOT_SHOWN):
            lines_after.append(line)
    return lines_after


@cache
def functions(file: str) -> frozenset[str]:
    """The tests in *file*; none where there is no such file."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    defined = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in defined if node.name.startswith("test_"))


def _named(control: Control, ours: Outcomes) -> set[str]:
    """Every test that *control* names; of a file each that stands in it or was run."""
    named = set(map(_plain, ours))
    for node in control.node_ids:
        functions_found = functions(node) if "::" not in node else ()
        named |= {f"{node}::{name}" for name in functions_found} or ({node} if "::" in node else set())
    return named


def _plain(test: str) -> str:
    """The function that the test with id *test* is a case of."""
    return test.partition("[")[0]


def _is(test: str, name: str) -> bool:
    """Whether the test with id *test* is what *name* of the checklist means."""
    plain = _plain(test)
    return plain == name or plain.partition("::")[0] == name


def _tests(count: int) -> str:
    return f"{count} test" if count == 1 else f"{count} tests"
