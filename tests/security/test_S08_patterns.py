"""S08: nobody but the bounded, linear engine runs an expression that was configured."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Iterator

import pytest

from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.pattern import Pattern
from tests.contract.dialects import judged, own_rules, pattern
from tests.lint.tree import PACKAGE, Source, findings, planted

_USES = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}


def foreign_expressions(source: Source) -> Iterator[str]:
    """Uses of ``re`` with an expression that does not stand in this very file."""
    tree = source.tree()
    loops = {name for node in ast.walk(tree) if isinstance(node, ast.comprehension) for name in _loop(node)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and _is_re(node.func)
            and node.args
            and not _is_ours(node.args[0], loops)
        ):
            yield f"{source.path}:{node.lineno}: an expression from elsewhere"


def _is_re(called: ast.expr) -> bool:
    is_attribute = isinstance(called, ast.Attribute) and called.attr in _USES
    return is_attribute and isinstance(called.value, ast.Name) and called.value.id == "re"


def _loop(node: ast.comprehension) -> Iterator[str]:
    """The name of a loop over texts that stand there."""
    texts = node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List) else [node.iter]
    if isinstance(node.target, ast.Name) and all(isinstance(text, _TEXT) for text in texts):
        yield node.target.id


_TEXT = ast.Constant | ast.JoinedStr


def _is_ours(expression: ast.expr, loops: set[str]) -> bool:
    """A text, a constant of this module by its name in capitals, or what loops over texts."""
    return isinstance(expression, _TEXT) or (
        isinstance(expression, ast.Name) and (expression.id.isupper() or expression.id in loops)
    )


def test_S08_no_expression_comes_from_elsewhere() -> None:
    assert findings(foreign_expressions, PACKAGE) == []


def test_S08_the_search_bites() -> None:
    assert planted(foreign_expressions, "import re\nre.compile(pattern)")
    assert planted(foreign_expressions, "import re\nre.search(settings.pattern, text)")
    assert not planted(foreign_expressions, "import re\nre.compile(_FORM)\nre.fullmatch(r'a', x)")


BOMBS = ("re:(a+)+$", "re:(.*,){20}", "re:(a|aa)+$", "re:(a|a?)+$", "re:(.*a){20}", "a*" * 100)


@pytest.mark.parametrize("bomb", BOMBS)
async def test_S08_the_loop_runs_on(bomb: str) -> None:
    """How long others wait while an answer of the worst kind is judged, by the time of this thread."""
    try:
        rules = own_rules(pattern(name="bomb", patterns=[bomb]))
    except InvalidConfigError:
        return  # refused where it was written
    texts = ["a" * 30 + "!", "a," * 5000, "a" * 100_000 + "\n", "pwd:" * 4_000, "token=" * 4_000]
    stalls = []
    for text in texts:
        began_s = time.thread_time()
        judged(RawResponse(400, body={"message": text}), rules)
        stalls.append(time.thread_time() - began_s)
        await asyncio.sleep(0)
    assert max(stalls) <= 0.05


def test_S08_each_place_for_a_pattern_is_checked_at_load() -> None:
    good = {"name": "x", "http_codes": [400], "patterns": [], "strategy": "standard"}
    for bad in ("re:(?=a)b", "re:(a)\\1", "x" * 10_000, "*"):
        for field in ({"patterns": [bad]}, {"header": {"name": "x-why", "value": bad}}):
            with pytest.raises(ValueError, match=r"pattern|500"):
                Pattern.model_validate({**good, **field})
