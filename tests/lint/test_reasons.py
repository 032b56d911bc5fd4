"""Codes have one home, fairlead.policy.reasons: Python takes them from there, and SQL and docs use no others."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import get_args

from fairlead.engine.ports import NoResponseKind
from fairlead.policy.reasons import BY_SUBJECT, REASONS
from tests.lint.tree import PACKAGE, ROOT, Source, files, findings, planted, sources

HOME = f"{PACKAGE}/policy/reasons"
NOT_OURS = (HOME, f"{PACKAGE}/errors", f"{PACKAGE}/testing", f"{PACKAGE}/demo")
"""The home itself, the classes that state their own codes, and the fake providers."""
PROVIDERS_OWN = {"lock_timeout", "failed"}
"""Codes of a provider that a dialect names."""
_CODE = re.compile(r"[a-z]+(_[a-z]+)*")
_SQL = re.compile(r"'code', '(\w+)'|(?<!park_)\breason = '(\w+)'|'transient_server', '(?!code)(\w+)',")
_DOCS = re.compile(r"\b(?:code|reason) `([a-z]+(?:_[a-z]+)*)`")


def literal_codes(source: Source) -> Iterator[str]:
    """Yield the codes that a call or an exception class of *source* writes as a literal."""
    if source.within(*NOT_OURS):
        return
    for node in ast.walk(source.tree()):
        for value in _codes_in(node):
            text = value.value if isinstance(value, ast.Constant) else None
            if isinstance(text, str) and _CODE.fullmatch(text) and text not in PROVIDERS_OWN:
                yield f"{source.path}:{value.lineno}: {text!r} hint: take it from {HOME}"


def _codes_in(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg in {"code", "reason"})
        if getattr(node.func, "id", "") == "Failure":
            yield from node.args[1:2]
    elif isinstance(node, ast.ClassDef):
        for line in node.body:
            if isinstance(line, ast.Assign) and {getattr(to, "id", "") for to in line.targets} & {
                "code",
                "reason",
            }:
                yield line.value


@cache
def sql_codes() -> frozenset[str]:
    text = "\n".join(path.read_text("utf-8") for path in files(PACKAGE, suffixes=(".sql",)))
    return frozenset(filter(None, (word for match in _SQL.findall(text) for word in match)))


@cache
def words_elsewhere() -> frozenset[str]:
    """Return every name, attribute and text of the package outside the home of codes."""
    words: set[str] = set()
    for source in sources(PACKAGE):
        if not source.within(HOME):
            words |= {getattr(node, "id", "") for node in ast.walk(source.tree())}
            words |= {getattr(node, "attr", "") for node in ast.walk(source.tree())}
            words |= {str(getattr(node, "value", "")) for node in ast.walk(source.tree())}
    return frozenset(words)


def test_code_stands_for_one_reason() -> None:
    codes = Counter(reason.code for reasons in BY_SUBJECT.values() for reason in reasons)
    assert [code for code, count in codes.items() if count > 1] == []


def test_reason_says_in_one_sentence_what_happened_and_what_to_do() -> None:
    for reason in REASONS.values():
        assert _CODE.fullmatch(reason.code), reason
        assert reason.text.endswith("."), reason
        assert reason.hint, reason
        assert not reason.hint.endswith("."), reason
        assert reason.anchor.endswith(f"#{reason.code}")


def test_python_takes_codes_from_their_home() -> None:
    assert findings(literal_codes, PACKAGE) == []
    assert set(get_args(NoResponseKind)) <= REASONS.keys()


def test_sql_and_docs_use_no_other_codes() -> None:
    assert {"crashed", "poison", "expired", "needs_reauth"} <= sql_codes() <= REASONS.keys()
    pages = "\n".join(path.read_text("utf-8") for path in files("docs", suffixes=(".md",)))
    assert set(_DOCS.findall(pages)) <= REASONS.keys()


def test_each_code_is_used() -> None:
    constants = {
        name
        for module in ("call", "job", "limit", "process", "token")
        for name in re.findall(
            r"^([A-Z_]+) = ", (ROOT / HOME / f"{module}_reasons.py").read_text("utf-8"), re.M
        )
    }
    used = words_elsewhere() | {code.upper() for code in (*sql_codes(), *get_args(NoResponseKind))}
    assert sorted(constants - used) == []


def test_literal_code_is_found() -> None:
    text = "raise LimitExceededError('x', reason='odd_one')\nFailure(a, 'odd')\nclass E(Exception):\n    code = 'own'\n"
    assert len(planted(literal_codes, text)) == 3
    assert (
        planted(literal_codes, "raise E('x', reason=ODD.code, hint='odd')\nE(reason='it was late')\n") == []
    )
