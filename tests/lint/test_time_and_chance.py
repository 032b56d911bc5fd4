"""D9: clocks, randomness and fresh ids are arguments; only the outer rooms may ask the machine for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.lint.tree import PACKAGE, Source, findings, planted

MAY_ASK = (f"{PACKAGE}/adapters", f"{PACKAGE}/testing", f"{PACKAGE}/cli", f"{PACKAGE}/demo")
FORBIDDEN_MODULES = {"random", "secrets"}
FORBIDDEN_NAMES = {
    "asyncio.sleep",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.getrandom",
    "os.urandom",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid.uuid7",
}


def time_and_chance(source: Source) -> Iterator[str]:
    if source.within(*MAY_ASK):
        return
    tree = source.tree()
    names = dict(_imported(tree))
    for node in ast.walk(tree):
        for name_of_clock in _forbidden_names(node, names):
            yield f"{source.path}:{getattr(node, 'lineno', 0)}: {name_of_clock} hint: take a clock, draw or ids"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield local name and full dotted name of each import, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _forbidden_names(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in FORBIDDEN_MODULES)
    elif isinstance(node, ast.ImportFrom):
        full = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in full if node.module in FORBIDDEN_MODULES or name in FORBIDDEN_NAMES)
    elif isinstance(node, ast.Attribute):
        name = _dotted(node, names)
        if name in FORBIDDEN_NAMES:
            yield name


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, names)
        return f"{base}.{node.attr}" if base else None
    return None


def test_time_chance_and_ids_come_as_arguments() -> None:
    assert findings(time_and_chance, PACKAGE) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\nt = time.time()",
        "import time as clock\nf = clock.monotonic  # handed on, not called",
        "from time import monotonic as now",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime as dt, UTC\ndt.now(UTC)",
        "from datetime import date\ndate.today()",
        "def f():\n    import random",
        "import secrets",
        "from random import random",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4",
        "import os\nos.urandom(8)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
    ],
)
def test_direct_use_of_time_or_chance_is_found(text: str) -> None:
    assert len(planted(time_and_chance, text)) == 1


def test_adapters_and_similar_names_are_no_findings() -> None:
    assert planted(time_and_chance, "import time\ntime.time()", f"{PACKAGE}/adapters/clock.py") == []
    assert planted(time_and_chance, "from datetime import datetime\ndatetime.fromisoformat('x')") == []
    assert planted(time_and_chance, "clock.monotonic(); draw.random(); job.time()") == []
