"""P11, S08: no regular expression of the package takes more than linear time, whatever text it is given.

Expressions of profiles and connections are no concern of this: a linear engine runs them (S08), as it does
those of pydantic.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from fairlead.policy.providers.endpoint import LABEL
from tests.lint.backtracking import superlinear
from tests.lint.tree import PACKAGE, Source, sources

_CALLS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
_ONCE = {"match", "fullmatch"}
_NOT_SHIPPED_TEXT = (f"{PACKAGE}/testing", f"{PACKAGE}/demo")
_BEHIND_A_NAME = "asked once behind each name of a member, and takes no more than the blanks that stand there"
BOUNDED: dict[str, str] = {
    r"\s*+:\s*+false\b": _BEHIND_A_NAME,
    r"\s*+:\s*+true\b": _BEHIND_A_NAME,
    r"\s*+:\s*+[13-5][0-9]{2}\b": _BEHIND_A_NAME,
    r"\s*+:\s*+\[\s*+[^\]]": _BEHIND_A_NAME,
    rf"{LABEL}(?:\.{LABEL}){{1,9}}": "matched once, and takes at most 62 steps a character",
    r"rel\s{0,8}=\s{0,8}\"?[^\";,]{0,200}\bnext\b": "takes at most 220 characters from each place on",
    r"\d{309}": "takes at most 309 digits from each place on",
}
"""Expressions that look slow to this lint and are not, each with its reason."""


def patterns(source: Source, module: ModuleType | None = None) -> Iterator[tuple[int, str, int, bool]]:
    """Yield (line, pattern, flags, whether it is searched for) of each expression in *source*."""
    loaded = vars(module) if module else {"re": re}
    for node in ast.walk(source.tree()):
        if not isinstance(node, ast.Call) or not _is_re(node.func):
            continue
        method = node.func.attr  # type: ignore[attr-defined] (as _is_re says)
        pattern = _text(node.args[0], loaded)
        if pattern is None:
            continue
        yield node.lineno, pattern, _flags(node, loaded), _is_searched(source, node, method)


def _is_re(called: ast.expr) -> bool:
    is_attribute = isinstance(called, ast.Attribute) and called.attr in _CALLS
    return is_attribute and isinstance(called.value, ast.Name) and called.value.id == "re"


def _text(node: ast.expr, loaded: dict[str, object]) -> str | None:
    """Return the expression. A part that is only known at run time counts as a letter."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(part, loaded) for part in node.values)
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), dict(loaded))
    except NameError:
        return None  # a loop over texts, each of which is found as a value of the module
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _part(part: ast.expr, loaded: dict[str, object]) -> str:
    if isinstance(part, ast.FormattedValue):
        try:
            return str(eval(compile(ast.Expression(part.value), "", "eval"), dict(loaded)))
        except NameError:
            return "x"
    assert isinstance(part, ast.Constant)
    return str(part.value)


def _flags(node: ast.Call, loaded: dict[str, object]) -> int:
    flags = [arg for arg in node.args[1:] if "re." in ast.unparse(arg)]
    flags += [keyword.value for keyword in node.keywords if keyword.arg == "flags"]
    return sum(int(eval(ast.unparse(flag), dict(loaded))) for flag in flags)


def _is_searched(source: Source, node: ast.Call, method: str) -> bool:
    """Return whether the expression is searched for, by its own call or through the name it is assigned to."""
    if method != "compile":
        return method not in _ONCE
    dumped = ast.dump(node)
    for statement in ast.walk(source.tree()):
        if isinstance(statement, ast.Assign) and any(
            ast.dump(part) == dumped for part in ast.walk(statement.value)
        ):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
            used = {use for name in names for use in re.findall(rf"\b{name}\.(\w+)\(", source.text)}
            return not used or bool(used - _ONCE)
    return True


def slow(source: Source, module: ModuleType | None = None) -> Iterator[str]:
    for line, pattern, flags, searched in patterns(source, module):
        if pattern in BOUNDED:
            continue
        why = superlinear(pattern, flags, everywhere=searched)
        if why is not None:
            yield f"{source.path}:{line}: {pattern!r} takes more than linear time: {why}"


def _modules() -> Iterator[tuple[Source, ModuleType]]:
    for source in sources(PACKAGE):
        if "re." in source.text and not source.within(*_NOT_SHIPPED_TEXT):
            name = source.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
            yield source, importlib.import_module(name.removesuffix(".__init__"))


@pytest.fixture(autouse=True)
def deep() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


def test_every_expression_takes_linear_time() -> None:
    assert [finding for source, module in _modules() for finding in slow(source, module)] == []


@pytest.mark.parametrize(
    "text",
    [
        're.search(r"(a+)+$", text)',
        'P = re.compile(r"([0-9]+)(ms|s)")\nP.findall(text)',
        'P = re.compile(r"(?i)\\beyJ[a-z-]{6,}\\.[a-z]{4,}")\nP.sub("", text)',
        're.split(r"\\s*,\\s*", text)',
        're.fullmatch(r"(\\w+\\s*)*=", text)',
        're.sub(rb"<a>.*?</a>", b"", text)',
        'NAME = "x"\nre.sub(rf"[a-z]+{NAME}", "", text)',
    ],
)
def test_a_slow_expression_is_found(text: str) -> None:
    source = Source(f"{PACKAGE}/policy/planted.py", f"import re\n{text}\n")
    assert list(slow(source))


@pytest.mark.parametrize(
    "text",
    [
        're.search(r"(?<![a-z])[a-z]++x", text)',
        'P = re.compile(r"([0-9]{1,9})(ms|s)")\nP.findall(text)',
        'P = re.compile(r"[a-z]+x")\nP.fullmatch(text)',
    ],
)
def test_a_linear_expression_is_none(text: str) -> None:
    assert not list(slow(Source(f"{PACKAGE}/policy/planted.py", f"import re\n{text}\n")))
