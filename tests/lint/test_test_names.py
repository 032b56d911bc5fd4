"""The name of a test begins with what it is about, so that a red line in CI can be read alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.lint.tree import Source, findings, planted

_WITHOUT_SUBJECT = re.compile(
    r"test_([ES]\d+_)?(it|they|one|who|whoever|whom|what|whatever|somebody|someone|nobody|everybody)(_|$)"
)


def names_without_subject(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _WITHOUT_SUBJECT.match(node.name):
            yield f"{source.path}:{node.lineno}: {node.name} hint: begin with the thing that is tested"


def test_names_of_tests_begin_with_their_subject() -> None:
    assert findings(names_without_subject, "tests") == []


def test_name_without_a_subject_is_found() -> None:
    assert planted(names_without_subject, "async def test_it_bites(): ...")
    assert planted(names_without_subject, "def test_what_is_refused(): ...")
    assert planted(names_without_subject, "def test_E12_nobody_reads(): ...")
    assert not planted(names_without_subject, "def test_whole_lease_ends(): ...")
