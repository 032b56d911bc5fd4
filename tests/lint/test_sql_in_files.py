"""SQL and Lua live in files (STYLE A7); a statement is never put together from strings (S05)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.lint.tree import PACKAGE, Source, findings, planted

# Single-user mode reads its one statement from standard input: there is no connection to load a file for.
NO_DRIVER = {f"{PACKAGE}/adapters/embedded/postgres_server.py"}
_SQL = re.compile(
    r"""^\s*(--.*\n\s*)*(
        select\s+(.+\s+from\s|[\w.]+\(|\d+\s*$|\*)
      | insert\s+into\s | update\s+[\w".:]+\s+set\s | delete\s+from\s | merge\s+into\s
      | with\s+(recursive\s+)?\w+(\s*\([^)]*\))?\s+as\s+(not\s+)?(materialized\s+)?\(
      | (create|alter|drop)\s+(or\s+replace\s+|unique\s+|temp\s+)*
        (table|index|schema|database|role|user|function|view|type|policy|extension)\s
      | truncate\s+(table\s)?\w+\s*$ | (grant|revoke)\s+\w+(,\s*\w+)*\s+on\s
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_LUA = re.compile(r"\bredis\.p?call\s*\(|\bKEYS\s*\[\s*\d+\s*\]|\bARGV\s*\[\s*\d+\s*\]")
_SENDS = {
    "copy_from_query",
    "cursor",
    "execute",
    "executemany",
    "fetch",
    "fetchmany",
    "fetchrow",
    "fetchval",
    "prepare",
}


def statements_in_strings(source: Source) -> Iterator[str]:
    if source.path in NO_DRIVER:
        return
    tree = source.tree()
    docs = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            text = node.value
            # An ellipsis is no SQL: such a text shows what to type.
            if (_SQL.search(text) or _LUA.search(text)) and "..." not in text:
                yield f"{source.path}:{node.lineno}: {text.strip()[:40]!r} hint: one statement, one file"


def built_statements(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree()):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if node.func.attr in _SENDS and _built(node.args[0]):
            yield f"{source.path}:{node.lineno}: statement built from strings hint: pass values as parameters"


def _docstrings(tree: ast.Module) -> set[ast.AST]:
    """Return every string that is a statement: prose, never sent to a server."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _built(argument: ast.expr) -> bool:
    if isinstance(argument, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in argument.values)
    if isinstance(argument, ast.BinOp):
        return isinstance(argument.op, ast.Add | ast.Mod)
    if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute):
        return argument.func.attr in {"format", "format_map", "join", "replace"}
    return False


def test_no_statement_stands_in_a_string() -> None:
    assert findings(statements_in_strings, PACKAGE) == []


def test_no_statement_is_built() -> None:
    assert findings(built_statements, PACKAGE) == []


@pytest.mark.parametrize(
    "text",
    [
        "q = 'SELECT id FROM job'",
        "q = 'select 1'",
        "q = '''\n    UPDATE job SET state = $1'''",
        "q = f'DELETE FROM {table}'",
        "q = 'insert into job values ($1)'",
        "q = '-- note\\nWITH due AS (SELECT 1) SELECT * FROM due'",
        "q = 'CREATE UNIQUE INDEX x ON y (z)'",
        "q = 'GRANT SELECT ON job TO door'",
        "q = \"return redis.call('GET', KEYS[1])\"",
    ],
)
def test_statements_in_strings_are_found(text: str) -> None:
    assert len(planted(statements_in_strings, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""Select one job from the queue."""',
        "say = 'select a tenant, then update its weight'",
        "say = 'drop the connection from the list'",
        "say = 'Update the settings and set the key'",
        "say = 'with care'",
        "hint = 'ALTER ROLE ... SET synchronous_commit = on'",
        "await c.execute(statement, value)",
    ],
)
def test_words_to_people_are_not_taken_for_sql(text: str) -> None:
    assert planted(statements_in_strings, text) == []


@pytest.mark.parametrize(
    "argument",
    ["f'... {value}'", "'... %s' % value", "'... ' + value", "'... {}'.format(value)", "' '.join(parts)"],
)
def test_built_statements_are_found(argument: str) -> None:
    assert len(planted(built_statements, f"c.fetchrow({argument}, 1)")) == 1


def test_a_statement_with_parameters_is_fine() -> None:
    assert (
        planted(built_statements, "c.fetch(sql.job_claim, [queue]); queue.fetch('plain', f'{value}')") == []
    )
