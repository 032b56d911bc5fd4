"""A method that a test's subclass replaces still exists: after a rename the subclass would replace nothing.

Such subclasses take a safeguard out, or stand in for a server, so a stale one makes its test prove nothing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from tests.lint.tree import Source, sources


def private_methods(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the methods with one leading underscore of each class that extends one of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(not is_standard(base) for base in node.bases):
            for method in node.body:
                is_function = isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                if is_function and method.name.startswith("_") and not method.name.startswith("__"):
                    yield method


def is_standard(base: ast.expr) -> bool:
    """Return whether *base* is a class of the standard library, such as `asyncio.BaseEventLoop`."""
    module = base.value if isinstance(base, ast.Attribute) else None
    return isinstance(module, ast.Name) and module.id in sys.stdlib_module_names


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield each attribute that is read, except of `super()` and of a class, and each quoted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = node.value
            function = base.func if isinstance(base, ast.Call) else None
            is_super = isinstance(function, ast.Name) and function.id == "super"
            is_class = isinstance(base, ast.Name) and base.id[:1].isupper()
            if not is_super and not is_class:
                yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def stale_overrides(tests: list[Source], used: set[str]) -> list[str]:
    """Return the private methods of subclasses in *tests* that no code calls."""
    return [
        f"{test.path}:{method.lineno}: {method.name} replaces nothing and is not called "
        "hint: give it the present name of the method that it replaces"
        for test in tests
        for method in private_methods(test.tree())
        if method.name not in used
    ]


def test_no_override_is_stale() -> None:
    tests = list(sources("tests"))
    used = {name for source in [*tests, *sources("src", "bench", "tools")] for name in uses(source.tree())}
    assert stale_overrides(tests, used) == []


def test_stale_override_is_found() -> None:
    stale = ast.parse(
        "class A(B):\n    def _gone(self):\n        super()._gone()\n        return B._gone(self)"
    )
    assert [method.name for method in private_methods(stale)] == ["_gone"]
    assert "_gone" not in set(uses(stale))
