"""Links between our pages lead somewhere, and each decision is in the index."""

from __future__ import annotations

import re
from pathlib import Path

from tests.lint.tree import ROOT, files

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
ADR = ROOT / "docs/adr"


def dead_links(page: Path, text: str) -> list[str]:
    local = [
        link
        for link in _LINK.findall(_CODE.sub("", text))
        if "://" not in link and not link.startswith("mailto:")
    ]
    return [f"{page}: {link}" for link in local if not (page.parent / link).exists()]


def test_links_lead_somewhere() -> None:
    assert [
        dead for page in files(suffixes=(".md",)) for dead in dead_links(page, page.read_text("utf-8"))
    ] == []


def test_each_decision_has_its_parts_and_stands_in_the_index() -> None:
    index = (ADR / "README.md").read_text("utf-8")
    for page in sorted(ADR.glob("[0-9]*.md")):
        text = page.read_text("utf-8")
        assert f"({page.name})" in index, page.name
        for part in ("# ", "## Context", "## Decision", "## Consequences"):
            assert re.search(rf"^{part}", text, re.MULTILINE), f"{page.name} has no {part!r}"


def test_it_bites() -> None:
    text = "[a](README.md) [b](missing.md#x) [c](https://x.example/y) `[d](also.md)`\n```\n[e](gone.md)\n```"
    assert dead_links(ADR / "page.md", text) == [f"{ADR / 'page.md'}: missing.md"]
