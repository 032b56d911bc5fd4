"""Each named scenario that is built is a test by its name: the words of its function or of its docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.lint.tree import Source, planted, sources

SCENARIOS = (
    "limit 2 with 10 askers ⇒ 2",
    "an orphan is gone at lease + 1 s and its waiter is served",
    "a 6-minute waiter is promoted",
    "quota 2 ⇒ the third refused, released ⇒ granted",
    "tenants do not share",
    "100 rapid requests of one tenant ⇒ flagged and throttled",
    "breaker opens, queued work keeps its order and class",
    "Retry-After 120 ⇒ 120 s; 2 ⇒ ~2,000 ms",
    "502 points asked, 498 available, 50/s ⇒ 80 ms",
    "207 with 1 of 3 failed ⇒ one item retried",
    "duplicate priorities refused",
    "Redis latency rising 5 ms → 3 s ⇒ degraded, no failed job, back by itself",
)


def words(text: str) -> str:
    """Return *text* without the characters that a function's name cannot have."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def words_of_tests(source: Source) -> Iterator[str]:
    """Yield the words of each test's name, and of its docstring."""
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield words(node.name)
            yield words(ast.get_docstring(node) or "")


def test_each_scenario_is_a_test() -> None:
    names = [name for source in sources("tests") for name in words_of_tests(source)]
    missing = [scenario for scenario in SCENARIOS if not any(words(scenario) in name for name in names)]
    assert missing == []


def test_a_name_is_looked_for_in_tests_only() -> None:
    source = 'def test_limit_2_with_10_askers_2(): "Retry-After 120."\ndef helper(): "tenants do not share"\n'
    assert planted(words_of_tests, source) == ["test limit 2 with 10 askers 2", "retry after 120"]
