"""One name for one thing: public classes, modules of a floor, and errors that end in Error."""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.lint.tree import PACKAGE, Source, sources

# To do: lower these two to nothing. What is named so today may stay, and nothing else may come.
SHARED_CLASS_NAMES = {
    "Account",
    "Bound",
    "Call",
    "Cancel",
    "Client",
    "Connection",
    "DeadLetter",
    "Endpoints",
    "Entry",
    "Fitting",
    "Grant",
    "Grants",
    "Listener",
    "Pool",
    "Replay",
    "Retention",
    "Roles",
    "Scope",
    "Table",
    "Transport",
    "Unknown",
    "Verdict",
    "Wait",
    "What",
}

EXCEPTIONS_WITHOUT_ERROR = {
    "AddressRefused",
    "BodyMalformed",
    "BodyTooLarge",
    "Aborted",
    "EndpointRefused",
    "FaultInjected",
    "LeadsElsewhere",
    "LineTooLong",
    "PageFailed",
    "PatternRefused",
    "ProxyNotResolved",
    "OutputClosed",
    "StreamBroken",
    "Unreadable",
    "XmlRefused",
}

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
    """Return the public class names that several public files define."""
    return shared(
        (node.name, source.path)
        for source in files
        if is_public(source.path)
        for node in classes(source)
        if not node.name.startswith("_")
    )


def shared_modules(files: Iterable[Source]) -> dict[str, list[str]]:
    """Return the public module names, with their floor, that several folders of it have."""
    paths = [PurePosixPath(source.path) for source in files if is_public(source.path)]
    return shared(
        (f"{path.parts[2]}: {path.stem}", str(path)) for path in paths if path.stem not in NO_MODULES
    )


def exceptions_without_error(files: Iterable[Source]) -> set[str]:
    """Return the public exceptions with another ending; a base class counts by its name in any file."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for source in files
        for node in classes(source)
    }
    names = {name for name in bases if is_exception(name, bases)}
    return {name for name in names if not name.endswith("Error") and not name.startswith("_")}


def is_exception(name: str, bases: Mapping[str, set[str]]) -> bool:
    """Return whether the class *name* is an exception, by the names of its *bases*."""
    builtin = getattr(builtins, name, None)
    if isinstance(builtin, type) and issubclass(builtin, BaseException):
        return True
    return any(is_exception(base, bases) for base in bases.get(name, ()) if base != name)


def planted(*texts: str, floor: str = "engine") -> list[Source]:
    return [Source(f"{PACKAGE}/{floor}/part{number}/planted.py", text) for number, text in enumerate(texts)]


def test_public_class_name_stands_for_one_class() -> None:
    repeated = shared_classes(sources(PACKAGE))
    assert {name: paths for name, paths in repeated.items() if name not in SHARED_CLASS_NAMES} == {}


def test_module_name_stands_for_one_module_of_a_floor() -> None:
    assert shared_modules(sources(PACKAGE)) == {}


def test_public_exceptions_end_in_error() -> None:
    assert exceptions_without_error([*sources(PACKAGE)]) - EXCEPTIONS_WITHOUT_ERROR == set()


def test_second_class_of_a_name_is_found() -> None:
    assert list(shared_classes(planted("class Pool: ...", "class Pool: ..."))) == ["Pool"]
    assert shared_classes(planted("class Pool: ...", "class _Pool: ...")) == {}
    private = Source(f"{PACKAGE}/testing/_kit/pool.py", "class Pool: ...")
    assert shared_classes([*planted("class Pool: ..."), private]) == {}


def test_second_module_of_a_name_is_found() -> None:
    assert list(shared_modules(planted("", ""))) == ["engine: planted"]
    assert shared_modules([*planted(""), *planted("", floor="policy")]) == {}


def test_exception_with_another_ending_is_found() -> None:
    text = "class GoneError(KeyError): ...\nclass Gone(GoneError): ...\nclass _Lost(GoneError): ...\nclass Pool: ..."
    assert exceptions_without_error(planted(text, "class Away(port.GoneError): ...")) == {"Gone", "Away"}
