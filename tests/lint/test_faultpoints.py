"""Fault points are listed by name, and the list is exactly what the code passes through."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from fairlead._core.faultpoint import POINTS
from tests.lint.tree import PACKAGE, Source, sources

_HOME = f"{PACKAGE}/_core/faultpoint.py"


def passed(source: Source) -> Iterator[tuple[str, str | None]]:
    """Yield position and literal name (None if it is no literal) of each call of a fault point."""
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.Call) and _called(node.func) == "faultpoint":
            name = node.args[0] if len(node.args) == 1 else None
            literal = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
            yield f"{source.path}:{node.lineno}", literal


def _called(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def mismatches(listed: Iterable[str], files: Iterable[Source]) -> list[str]:
    calls = [call for source in files if source.path != _HOME for call in passed(source)]
    used = {name for _, name in calls}
    unlisted = [f"{where}: {name!r} is not in POINTS" for where, name in calls if name not in set(listed)]
    return unlisted + [f"{name!r} is in POINTS and nowhere passed" for name in sorted(set(listed) - used)]


def test_points_and_calls_are_the_same_set() -> None:
    assert mismatches(POINTS, sources(PACKAGE)) == []


def test_fault_point_that_is_not_listed_or_not_used_is_found() -> None:
    code = Source(
        f"{PACKAGE}/engine/x.py", "faultpoint('a.b')\nfaultpoint.faultpoint('c.d')\nfaultpoint(name)\n"
    )
    assert mismatches({"a.b", "c.d"}, [code]) == [f"{PACKAGE}/engine/x.py:3: None is not in POINTS"]
    assert len(mismatches({"a.b", "c.d", "e.f"}, [code])) == 2
    assert len(mismatches({"a.b"}, [code])) == 2
