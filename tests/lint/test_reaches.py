"""Tests use public names, ports, fault points and settings: they replace no name of ours and read no private one.

Both ceilings only fall. A store, a transport or a clock that misbehaves is built as `tests.support.altered.Altered`;
a connection for foreign statements comes from `tests.support.raw_connections`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.lint.tree import Source, findings, planted

REPLACED_NAMES = 114
PRIVATE_READS = 289
_ELSEWHERE = {"ResponseHandler", "aiohappyeyeballs", "asyncio", "asyncpg", "os", "socket", "sys", "time"}
_NOT_PRIVATE = {"_asdict", "_exit", "_fields", "_replace"}


def replaced_names(source: Source) -> Iterator[str]:
    """Yield each `monkeypatch.setattr` on a name that is not of a library."""
    for node in ast.walk(source.tree()):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[target, *_]):
                root = ast.unparse(target).strip("f'\"").partition(".")[0]
                if root not in _ELSEWHERE:
                    yield f"{source.path}:{node.lineno}: {ast.unparse(target)} hint: alter a port, or set a setting"


def private_reads(source: Source) -> Iterator[str]:
    """Yield each use of a private attribute of another object."""
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in {"self", "cls", *_ELSEWHERE} and node.attr not in _NOT_PRIVATE:
                yield f"{source.path}:{node.lineno}: {owner}.{node.attr} hint: ask through a public name"


def test_tests_replace_fewer_names_of_ours() -> None:
    found = findings(replaced_names, "tests")
    assert len(found) <= REPLACED_NAMES, found


def test_tests_read_fewer_private_attributes() -> None:
    found = findings(private_reads, "tests")
    assert len(found) <= PRIVATE_READS, found


def test_replaced_name_is_found() -> None:
    assert planted(replaced_names, "monkeypatch.setattr(store, 'settle', lost)")
    assert planted(replaced_names, "patch.setattr('fairlead.adapters.x.Y', 1)")
    assert not planted(replaced_names, "monkeypatch.setattr(os, 'geteuid', lambda: 1)")


def test_private_read_is_found() -> None:
    assert planted(private_reads, "x = database._pool")
    assert not planted(private_reads, "x = self._pool, row._replace(a=1), os._exit")
