"""A file is read in one sitting and a function fits a screen (STYLE A15)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.lint.tree import PACKAGE, Source, findings, planted

FOLDERS = (PACKAGE, "tests", "bench", "tools")
MAX_FILE = 400
MAX_FUNCTION = 60
REASON = "Over 400 lines because "


def long_files(source: Source) -> Iterator[str]:
    lines = source.text.splitlines()
    if len(lines) > MAX_FILE and not any(REASON in line for line in lines[:20]):
        yield f"{source.path}: {len(lines)} lines hint: split by subject, or say at the top: {REASON}..."


def long_functions(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                yield f"{source.path}:{node.lineno}: {node.name} has {length} lines"


def test_files_are_read_in_one_sitting() -> None:
    assert findings(long_files, *FOLDERS) == []


def test_functions_fit_a_screen() -> None:
    assert findings(long_functions, *FOLDERS) == []


def test_a_long_file_is_found_unless_it_says_why() -> None:
    body = "x = 1\n" * (MAX_FILE + 1)
    assert len(planted(long_files, body)) == 1
    assert planted(long_files, f'"""Words.\n\n{REASON}one table is one table.\n"""\n{body}') == []
    assert planted(long_files, "x = 1\n" * MAX_FILE) == []


def test_a_long_function_is_found() -> None:
    def method(lines: int) -> str:
        return "class A:\n    async def f(self):\n" + "        x = 1\n" * lines

    assert len(planted(long_functions, method(MAX_FUNCTION))) == 1
    assert planted(long_functions, method(MAX_FUNCTION - 1)) == []
