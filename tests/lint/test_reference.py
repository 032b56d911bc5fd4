"""docs/reference/{errors,settings,events}.md say what the code says; notices.md says what is delivered."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields

from fairlead.assembly.logs import NAMES
from fairlead.engine.jobs.handler import JobContext
from fairlead.engine.tokens.notification_jobs import _event
from fairlead.errors import FairleadError, all_errors
from tests.lint.tree import PACKAGE, ROOT, Source, findings, planted
from tests.support.engine import a_job
from tools import reference

ERRORS = {kind.__name__ for kind in reference.our_errors()}


def test_the_pages_are_what_the_code_gives() -> None:
    assert reference.outdated() == [], "run: python -m tools.reference"


def test_each_stable_code_has_one_line() -> None:
    codes = Counter(kind.code for kind in reference.our_errors())
    assert [code for code, count in codes.items() if count > 1] == []
    page = (ROOT / "docs/reference/errors.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(codes)


def codes_elsewhere(source: Source) -> Iterator[str]:
    if source.within(f"{PACKAGE}/errors"):
        return
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.ClassDef):
            bases = {getattr(base, "id", getattr(base, "attr", "")) for base in node.bases}
            if bases & ERRORS and "code" in _assigned(node):
                yield f"{source.path}:{node.lineno}: {node.name} hint: codes are given in errors/"


def _assigned(node: ast.ClassDef) -> set[str]:
    targets = [target for line in node.body if isinstance(line, ast.Assign) for target in line.targets]
    targets += [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_all_errors_are_on_the_page() -> None:
    assert findings(codes_elsewhere, PACKAGE) == []


def test_a_code_given_elsewhere_is_found_and_one_of_a_user_is_not_ours() -> None:
    mine = "class Mine(errors.RefusedError):\n    code = 'mine'\n"
    others = "class Other(ValueError):\n    code = 'other'\nclass Same(RefusedError):\n    hint = 'x'\n"
    assert len(planted(codes_elsewhere, mine + others)) == 1

    class Users(FairleadError):
        code = "users"

    assert Users not in all_errors()
    assert Users not in reference.our_errors()


def test_no_field_of_an_event_hides_a_field_of_its_line() -> None:
    reserved = {"timestamp", "level", "event", "logger", "exception"}
    for kind in reference.our_events():
        names = {field.name for field in fields(kind)}
        assert not names & reserved, kind.name
    assert {field.name for kind in reference.our_events() for field in fields(kind)} >= NAMES


def test_notices_describe_each_field_of_what_is_delivered() -> None:
    page = (ROOT / "docs/reference/notices.md").read_text("utf-8")
    table = page.split("## What an event holds")[1].split("##")[0]
    described = {
        name for row in re.findall(r"^\|(.*?)\|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    context = JobContext(a_job(), lambda: 60.0)
    delivered = {name for event in ("needs_reauth", "token_expiring") for name in _event(event, context, {})}
    assert described == delivered
