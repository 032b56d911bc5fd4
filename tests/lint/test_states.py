"""docs/states.md and the schema's check constraints use the same words (STYLE A13)."""

from __future__ import annotations

import re

from fairlead.adapters.postgres.migration_files import shipped_migrations
from tests.lint.tree import ROOT

_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n\)", re.DOTALL)
_CHECK = re.compile(r"CHECK \((\w+) IN \(([^)]*)\)\)", re.DOTALL)
_CASE = re.compile(r"\bCASE (\w+)\s(.*?)\bEND\b", re.DOTALL)
_SECTION = re.compile(r"^#+ [^\n]*`(\w+\.\w+)`\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_STATES = {"phase", "state", "status"}


def constrained(schema: str) -> dict[str, set[str]]:
    """Return ``table.column`` → the words that its constraint allows."""
    return {
        f"{table}.{column}": set(re.findall(r"'(\w+)'", words))
        for table, body in _TABLE.findall(schema)
        for column, words in _CHECK.findall(body) + _CASE.findall(body)
    }


def documented(page: str) -> dict[str, set[str]]:
    """Return ``table.column`` → the first column of the first table below its heading."""
    return {
        name: set(re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)) for name, body in _SECTION.findall(page)
    }


def differences(schema: str, page: str) -> list[str]:
    ruled, drawn = constrained(schema), documented(page)
    wrong = [
        f"{name}: {words} against {ruled.get(name)}"
        for name, words in drawn.items()
        if words != ruled.get(name)
    ]
    undrawn = [name for name in ruled if name.split(".")[1] in _STATES and name not in drawn]
    return wrong + [f"{name} is not drawn" for name in undrawn]


def test_docs_and_schema_agree() -> None:
    schema = shipped_migrations()[0].text
    assert constrained(schema)
    assert differences(schema, (ROOT / "docs/states.md").read_text("utf-8")) == []


SCHEMA = """
CREATE TABLE job (
    state text CHECK (state IN ('a',
                                'b')),
    why text CHECK (why IN ('x')),
    kind text CHECK (CASE kind WHEN 'k' THEN why IS NULL ELSE kind IN ('l') END)
);
"""
PAGE = """
# Words

## Jobs: `job.state`

| state | meaning |
| --- | --- |
| `a` | first |
| `b` | then |

## Why: `job.why`

| `x` | so |
"""


def test_different_words_of_a_state_are_found() -> None:
    assert constrained(SCHEMA)["job.kind"] == {"k", "l"}
    assert differences(SCHEMA, PAGE) == []
    assert len(differences(SCHEMA, PAGE.replace("| `b` | then |\n", ""))) == 1
    assert len(differences(SCHEMA, PAGE.replace("`b`", "`c`"))) == 1
    assert len(differences(SCHEMA, PAGE.replace("job.why", "job.how"))) == 1
    assert differences(SCHEMA, "# Words\n") == ["job.state is not drawn"]
