"""One name for one thing: public classes, and modules of a floor."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.lint.tree import PACKAGE, Source, sources

TWIN = f"{PACKAGE}/httpx2.py"
"""Offers the names of httpx.py for the second version of httpx: a program imports one of the two."""
NO_MODULES = {"__init__", "__main__"}


def is_public(path: str) -> bool:
    """Return whether no part of *path* is private; dunder files are public."""
    parts = PurePosixPath(path).with_suffix("").parts
    return not any(part.startswith("_") and part not in NO_MODULES for part in parts)


def classes(source: Source) -> Iterator[ast.ClassDef]:
    """Yield the classes at the top of *source*."""
    yield from (node for node in source.tree().body if isinstance(node, ast.ClassDef))


def shared(located: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names among (name, place) that have several places."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for name, path in located:
        by_name[name].append(path)
    return {name: paths for name, paths in by_name.items() if len(paths) > 1}


def shared_classes(files: Iterable[Source]) -> dict[str, list[str]]:
    """Return the public class names that several public files define; a twin's names are those of its original."""
    return shared(
        (node.name, source.path)
        for source in files
        if is_public(source.path) and source.path != TWIN
        for node in classes(source)
        if not node.name.startswith("_")
    )


def shared_modules(files: Iterable[Source]) -> dict[str, list[str]]:
    """Return the public module names, with their floor, that several folders of it have."""
    paths = [PurePosixPath(source.path) for source in files if is_public(source.path)]
    return shared(
        (f"{path.parts[2]}: {path.stem}", str(path)) for path in paths if path.stem not in NO_MODULES
    )


def planted(*texts: str, floor: str = "engine") -> list[Source]:
    return [Source(f"{PACKAGE}/{floor}/part{number}/planted.py", text) for number, text in enumerate(texts)]


def test_public_class_name_stands_for_one_class() -> None:
    assert shared_classes(sources(PACKAGE)) == {}


def test_module_name_stands_for_one_module_of_a_floor() -> None:
    assert shared_modules(sources(PACKAGE)) == {}


def test_second_class_of_a_name_is_found() -> None:
    assert list(shared_classes(planted("class Pool: ...", "class Pool: ..."))) == ["Pool"]
    assert shared_classes(planted("class Pool: ...", "class _Pool: ...")) == {}
    private = Source(f"{PACKAGE}/testing/_kit/pool.py", "class Pool: ...")
    assert shared_classes([*planted("class Pool: ..."), private]) == {}
    twin = Source(TWIN, "class Pool: ...")
    assert shared_classes([*planted("class Pool: ..."), twin]) == {}


def test_second_module_of_a_name_is_found() -> None:
    assert list(shared_modules(planted("", ""))) == ["engine: planted"]
    assert shared_modules([*planted(""), *planted("", floor="policy")]) == {}
