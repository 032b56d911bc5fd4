"""Where names and sentences leave plain English: the rules that `tools.words` counts and `make check` holds.

Python is read with ast and tokenize: bound names, and the words of docstrings and comments. Of SQL, Lua and
TOML the comments are read, of Markdown everything but code, quotations and links.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_NO_NAMES = """
told found known came heard given made kept asked held own each one wanted left taken seen wish way place
manner whole apart alone after before
began begun chosen gone got learnt manners meant met noted places said tried ways what who whose wishes
"""
NO_NAMES = frozenset(_NO_NAMES.split())
"""Participles, pronouns and household words that say nothing about what a variable holds."""
PEOPLE = frozenset({"who", "whom", "whose", "whoever", "whomever", "who's"})
SPEECH = frozenset({"tell", "tells", "telling", "told", "hear", "hears", "hearing", "heard"})
READER = frozenset({"you", "your", "yours", "yourself", "you're", "you'll", "you've"})
INSTANT = re.compile(r"(?:^|_)(?:began|begun|started|ended|ends|asked|since|now|due|left_at|at)_s$")
CLOCKS = frozenset({"monotonic", "monotonic_ns", "time", "time_ns", "perf_counter", "now", "utcnow"})
"""Methods that read a clock: what they return is an instant."""
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text(encoding="utf-8").split())
"""The verbs that a function's docstring may begin with. Add a verb of the field that is missing."""
RULES = ("bound", "who", "tell", "docstrings", "instants")

_WORD = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")
_CODE = re.compile(r"``.*?``|`[^`\n]*`|\"[^\"\n]{1,80}\"|“[^”\n]{1,120}”")
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2|<!--.*?-->", re.DOTALL | re.MULTILINE)
_TARGET = re.compile(r"\]\([^)\n]*\)|https?://\S+")
_COMMENTS = {
    ".sql": re.compile(r"'(?:[^'\n]|'')*'|(?P<text>--[^\n]*|/\*.*?\*/)", re.DOTALL),
    ".lua": re.compile(
        r"'[^'\n]*'|\"[^\"\n]*\"|(?P<text>--\[\[.*?\]\]|--[^\n]*)",
        re.DOTALL,
    ),
    ".toml": re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|(?P<text>#[^\n]*)"),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HOLDERS = (ast.Module, ast.ClassDef, *_FUNCTIONS)
_PROPERTIES = frozenset({"property", "cached_property", "setter", "getter", "overload"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A violation of one rule."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(slots=True)
class Count:
    """The figures of one file, or of several together."""

    names: int = 0
    words: int = 0
    docstrings: int = 0
    you: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Count) -> None:
        """Add the figures of *other*."""
        self.names += other.names
        self.words += other.words
        self.docstrings += other.docstrings
        self.you += other.you
        self.findings += other.findings

    def of(self, rule: str) -> int:
        """Return how many findings break *rule*."""
        return sum(finding.rule == rule for finding in self.findings)

    def per_thousand(self, number: int) -> float:
        """Return *number* for 1,000 words."""
        return 1000 * number / self.words if self.words else 0.0


def count(path: str, text: str) -> Count:
    """Return the figures of the file *path*, which holds *text*."""
    if path.endswith(".py"):
        return _python(path, text)
    figures = Count()
    _read_prose(figures, path, 1, _prose(path, text))
    return figures


# ---- words -----------------------------------------------------------------------------------------


def _prose(path: str, text: str) -> str:
    """Return what is English in *text*, on the lines where it stands."""
    pattern = _COMMENTS.get(PurePosixPath(path).suffix)
    if pattern:
        text = _blank(pattern, text, keep="text")
    return _blank(_TARGET, _blank(_FENCE, text)) if path.endswith(".md") else text


def _blank(pattern: re.Pattern[str], text: str, *, keep: str | None = None) -> str:
    """Return *text* without what *pattern* matches, or with only the group *keep*; its lines stay."""
    if keep is None:
        return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    parts, end = [], 0
    for match in pattern.finditer(text):
        parts += ["\n" * text.count("\n", end, match.start()), match[keep] or ""]
        end = match.end()
    return "".join(parts)


def _read_prose(figures: Count, path: str, line: int, text: str) -> None:
    for number, sentence in enumerate(text.split("\n"), start=line):
        words = [word.lower().replace("’", "'") for word in _WORD.findall(_CODE.sub(" ", sentence))]
        figures.words += len(words)
        figures.you += sum(word in READER for word in words)
        for rule, banned in (("who", PEOPLE), ("tell", SPEECH)):
            figures.findings += [
                Finding(path, number, rule, f"{word!r} in: {sentence.strip()[:90]}")
                for word in words
                if word in banned
            ]


# ---- Python ----------------------------------------------------------------------------------------


def _python(path: str, text: str) -> Count:
    tree = ast.parse(text, path)
    figures = Count()
    for line, prose in [*_docstrings(tree), *_comments(text)]:
        _read_prose(figures, path, line, prose)
    for line, name in _bound_names(tree):
        figures.names += 1
        if name.strip("_").lower() in NO_NAMES:
            figures.findings.append(Finding(path, line, "bound", name))
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS):
            _read_mood(figures, path, function)
    figures.findings += [Finding(path, line, "instants", text) for line, text in _instants(tree)]
    return figures


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that stands as a statement, those below attributes included."""
    for node in ast.walk(tree):
        for statement in node.body if isinstance(node, _HOLDERS) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"(noqa|type: ignore)\S*", "", token.string)


def _bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each binding: assignments, targets, parameters, aliases, functions, classes."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield line, name
            case ast.arg(arg=name) | ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield line, name
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                yield line, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name


def _read_mood(figures: Count, path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Count the docstring of *function*; that of a property may be a noun phrase, as for ruff's D401."""
    text = ast.get_docstring(function)
    names = {_last_name(decorator) for decorator in function.decorator_list}
    if not text or names & _PROPERTIES or function.name.startswith("test_"):
        return
    figures.docstrings += 1
    first = text.split(maxsplit=1)[0].strip(".,:;")
    if first not in VERBS:
        line = function.body[0].lineno
        figures.findings.append(
            Finding(path, line, "docstrings", f"{function.name}: {text.splitlines()[0][:80]}")
        )


def _last_name(node: ast.expr) -> str:
    """Return `c` of the expressions `a.b.c` and `a.b.c(...)`."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# ---- seconds and instants --------------------------------------------------------------------------


def _instants(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield names in `_s` that hold an instant, and names in `_at` that hold a duration."""
    for line, name in _bound_names(tree):
        if INSTANT.search(name.lower()):
            yield line, f"{name} is an instant: _at, or _mono of the monotonic clock"
    for node in ast.walk(tree):
        for name, value in _assigned(node):
            if name.endswith("_s") and not INSTANT.search(name) and _reads_clock(value):
                yield value.lineno, f"{name} holds what a clock returns: _at, or _mono"
            if name.endswith("_at") and _last_name(value) == "timedelta":
                yield value.lineno, f"{name} holds a timedelta: a duration is no instant"


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of a plain assignment or a keyword argument."""
    match node:
        case (
            ast.Assign(targets=[target], value=value)
            | ast.AnnAssign(target=target, value=ast.expr() as value)
        ):
            yield _last_name(target), value
        case ast.NamedExpr(target=ast.Name(id=name), value=value) | ast.keyword(arg=str(name), value=value):
            yield name, value


def _reads_clock(value: ast.expr) -> bool:
    """Return whether *value* is an instant: a clock's call, or one plus or minus a duration."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _reads_clock(value.left) or _reads_clock(value.right)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in CLOCKS
