"""What users read names no requirement of ours, and docs import only what is public."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairlead.adapters.postgres.migration_files import shipped_migrations
from fairlead.cli.init import settings_text
from tests.lint.tree import ROOT, files

SPEC_ID = re.compile(r"\((?:[A-Z]{1,2}\d{1,3})(?:, ?[A-Z]{1,2}\d{1,3})*\)|\bDEFAULTS\b|\bSPEC\b|Spec: [A-Z]")
REFERENCE = ("cli", "settings", "errors", "events", "providers", "exit-codes", "notices")
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


def spec_ids(text: str) -> list[str]:
    return [line for line in text.splitlines() if SPEC_ID.search(line)]


def private_imports(text: str) -> Iterator[str]:
    for block in _BLOCK.findall(text):
        yield from (module for module in _IMPORT.findall(block) if module not in PUBLIC)


def test_no_text_for_users_names_a_requirement() -> None:
    assert spec_ids(settings_text()) == []
    for page in REFERENCE:
        assert spec_ids((ROOT / f"docs/reference/{page}.md").read_text("utf-8")) == [], page
    assert len(spec_ids("a (T9).\n(DEFAULTS §1)\nas (T4, R7) says\nplain (UTC)")) == 3


def test_docs_import_public_modules_only() -> None:
    pages = [page for page in files("docs", suffixes=(".md",)) if "adr" not in page.parts]
    pages.append(ROOT / "README.md")
    assert [(page.name, name) for page in pages for name in private_imports(page.read_text("utf-8"))] == []
    assert [*private_imports("```python\nfrom fairlead.app import Fairlead\n```")] == ["fairlead.app"]


def test_migrations_are_numbered_without_gaps() -> None:
    """Two branches may add the same number, and no text conflict shows it."""
    assert shipped_migrations()
