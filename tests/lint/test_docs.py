"""Links between our pages lead somewhere, named files exist, and each decision is in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lint.tree import ROOT, files

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_PATH = re.compile(r"`([\w*]+(?:/[\w.*-]*)+|\w+\.py)`")
ADR = ROOT / "docs/adr"
DESIGN = ROOT / "docs/design"


def dead_links(page: Path, text: str) -> list[str]:
    local = [
        link
        for link in _LINK.findall(_CODE.sub("", text))
        if "://" not in link and not link.startswith("mailto:")
    ]
    return [f"{page}: {link}" for link in local if not (page.parent / link).exists()]


def missing_paths(text: str) -> list[str]:
    """Return the files and folders that *text* names and that are neither in the package nor in the tree."""
    homes = (ROOT / "src/fairlead", ROOT)
    return [path for path in _PATH.findall(text) if not any(any(home.glob(path)) for home in homes)]


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


def test_the_design_notes_stand_in_their_index() -> None:
    index = (DESIGN / "README.md").read_text("utf-8")
    notes = {page.name for page in DESIGN.glob("*.md")} - {"README.md"}
    assert notes == set(re.findall(r"\(([a-z-]+\.md)\)", index))


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", *sorted(page.name for page in DESIGN.glob("*.md"))])
def test_named_files_exist(page: str) -> None:
    path = ROOT / page if page == "ARCHITECTURE.md" else DESIGN / page
    assert missing_paths(path.read_text("utf-8")) == []


def test_planted_faults_are_found() -> None:
    assert missing_paths("`engine/jobs/worker.py` `tests/lint/` `engine/jobs/gone.py` `worker.py`") == [
        "engine/jobs/gone.py",
        "worker.py",
    ]
    text = "[a](README.md) [b](missing.md#x) [c](https://x.example/y) `[d](also.md)`\n```\n[e](gone.md)\n```"
    assert dead_links(ADR / "page.md", text) == [f"{ADR / 'page.md'}: missing.md"]
