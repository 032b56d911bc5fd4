"""What users read names no requirement of ours, and docs import only what is public.

User-facing are the docstrings of what `fairlead` and its public modules export, all of `fairlead.app`, texts
in the code (messages, hints, help), the comments of `fairlead init`, and the pages of the docs apart from
decisions and the project's own proof.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from fairlead.adapters.postgres.migration_files import shipped_migrations
from fairlead.cli.init import settings_text
from tests.lint.tree import ROOT, Source, files, findings, planted

SPEC_ID = re.compile(
    r"(?<![\w-])[A-GI-Z]\d{1,2}[a-z]?\b|\bADR[ -]?\d|\bDEFAULTS\b|\bSPEC\b|\bRULINGS\b|\bSpec: "
)
"""A letter and up to two digits, H1 of HTML aside."""
PROOF = {"figures.md", "reliability.md", "security.md", "models.md", "simulation.md"}
"""Pages on how the project is tested: they name its experiments, invariants and checks."""
PUBLIC = {
    "fairlead",
    "fairlead.errors",
    "fairlead.events",
    "fairlead.httpx",
    "fairlead.httpx2",
    "fairlead.testing",
    "fairlead.testing.api",
    "fairlead.testing.webhook",
}
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
_IMPORT = re.compile(r"^\s*(?:from|import) (fairlead[\w.]*)", re.MULTILINE)
_HOLDERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def spec_ids(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if SPEC_ID.search(line)]


# ---- docstrings ------------------------------------------------------------------------------------


def exported_docs(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the docstrings that `help` shows for *module*: its own, and those of its names and their members."""
    yield module.__name__, inspect.getdoc(module) or ""
    for name in getattr(module, "__all__", None) or vars(module):
        thing = getattr(module, name)
        if name.startswith("_") or not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield f"{module.__name__}.{name}", inspect.getdoc(thing) or ""
        members = inspect.getmembers(thing) if inspect.isclass(thing) else []
        for member, value in members:
            if not member.startswith("_") or member == "__init__":
                yield f"{module.__name__}.{name}.{member}", inspect.getdoc(value) or ""


def documented_ids(source: Source) -> Iterator[str]:
    """Yield ids in docstrings of public names; a module may end with a `Spec:` line."""
    for node, doc in _docstrings(source.tree()):
        name = getattr(node, "name", source.path)
        text = re.sub(r"\bSpec: [^\n]*\s*\Z", "", doc) if isinstance(node, ast.Module) else doc
        if not name.startswith("_"):
            yield from (f"{source.path}: {name}: {line}" for line in spec_ids(text))


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if isinstance(node, _HOLDERS) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield node, value.value


# ---- messages --------------------------------------------------------------------------------------


def said_ids(source: Source) -> Iterator[str]:
    """Yield ids in texts that are no docstrings: errors, hints, help, lines of a log."""
    tree = source.tree()
    docs = {doc for _, doc in _docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docs:
            yield from (f"{source.path}:{node.lineno}: {line}" for line in spec_ids(node.value))


# ---- pages -----------------------------------------------------------------------------------------


def private_imports(text: str) -> Iterator[str]:
    for block in _BLOCK.findall(text):
        yield from (module for module in _IMPORT.findall(block) if module not in PUBLIC)


def without_comments(text: str) -> str:
    return re.sub(r"(--|#).*", "", text)


def pages() -> Iterator[tuple[str, str]]:
    for page in files("docs", suffixes=(".md",)):
        if not {"adr", "design"} & set(page.parts):
            yield page.relative_to(ROOT).as_posix(), page.read_text("utf-8")


def test_no_docstring_of_an_exported_name_names_a_requirement() -> None:
    docs = [finding for name in sorted(PUBLIC) for finding in exported_docs(importlib.import_module(name))]
    assert len(docs) > 300
    assert [(name, line) for name, doc in docs for line in spec_ids(doc)] == []
    assert findings(documented_ids, "src/fairlead/app") == []


def test_no_message_names_a_requirement() -> None:
    assert findings(said_ids, "src/fairlead") == []
    stored = [*files("src", suffixes=(".sql", ".lua", ".toml"))]
    texts = {path.name: without_comments(path.read_text("utf-8")) for path in stored}
    assert [(name, line) for name, text in texts.items() for line in spec_ids(text)] == []


def test_no_page_or_settings_file_names_a_requirement() -> None:
    assert spec_ids(settings_text()) == []
    read = [(name, line) for name, text in pages() for line in spec_ids(text)]
    assert [finding for finding in read if finding[0].rpartition("/")[2] not in PROOF] == []


def test_planted_ids_are_found() -> None:
    """Each lint is seen to bite."""
    assert len(spec_ids("a (T9).\n(DEFAULTS §1)\nas (T4, R7) says\nby ADR 33\nE46\n(Q9-Q11)\nSpec: x")) == 7
    assert spec_ids("plain (UTC), p99, HTTP/2, H1, S256, UTF-8, RFC 3339, 2xx, A-Z0-9, X-1") == []
    module = ModuleType("planted", "About (C1).")
    module.__dict__["act"] = test_planted_ids_are_found
    assert [name for name, doc in exported_docs(module) if spec_ids(doc)] == ["planted"]
    text = (
        '"""Doc. Spec: C1."""\ndef act(): """Act (Q8)."""\ndef _private(): """See Q9."""\nsay("refused (G6)")'
    )
    assert planted(documented_ids, text) == ["src/fairlead/engine/planted.py: act: Act (Q8)."]
    assert planted(said_ids, text) == ["src/fairlead/engine/planted.py:4: refused (G6)"]


def test_docs_import_public_modules_only() -> None:
    read = [*pages(), ("README.md", (ROOT / "README.md").read_text("utf-8"))]
    assert [(page, name) for page, text in read for name in private_imports(text)] == []
    assert [*private_imports("```python\nfrom fairlead.app import Fairlead\n```")] == ["fairlead.app"]


def test_migrations_are_numbered_without_gaps() -> None:
    """Two branches may add the same number, and no text conflict shows it."""
    assert shipped_migrations()
