"""Pages of the documentation as the tests run them, and an account of which of their blocks ran.

    page = Page("how-to/jobs.md")
    page.write_to(folder)                # its modules, as a reader has them
    for command in page.commands(): ...  # its commands

A module has run once Python has compiled it where it was written. Any other block has run once a test took it,
because what the test does with it can only fail the test. `pytest --docs` (see page_hooks.py) lists the others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SHOWN_ONLY = frozenset({"mermaid"})
"""Languages of blocks that are pictures."""
EXAMPLE = frozenset({"python", "console"})
"""Languages of README's blocks that run."""

BlockPosition = tuple[str, int]
"""A page, and the line on which a block begins."""

_FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"# (\S+\.\w+)\n")

_placed: set[BlockPosition] = set()
_written: list[tuple[BlockPosition, Path]] = []


@dataclass(frozen=True, slots=True)
class Block:
    """One block between fences. *words*: what stands behind its language."""

    place: BlockPosition
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """The file that it is, by its first line."""
        named = _NAMED.match(self.text)
        return named[1] if named else None

    def take(self) -> str:
        """Return its text, for a test that runs it."""
        _placed.add(self.place)
        return self.text

    def write_to(self, folder: Path) -> None:
        """Write the block as the file that it names in *folder*."""
        assert self.file is not None, self.place
        path = folder / self.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.text)
        if self.language == "python":
            _written.append((self.place, path))
        else:
            _placed.add(self.place)


class Page:
    """One page, by its path below docs/, or by its whole path."""

    def __init__(self, page: str | Path) -> None:
        path = DOCS / page
        self.text = path.read_text("utf-8")
        self.blocks = blocks_of(str(path.relative_to(ROOT)), self.text)

    def write_to(self, folder: Path) -> None:
        """Write its modules into the folder of a project."""
        for block in self.blocks:
            if block.language == "python" and block.file:
                block.write_to(folder)

    def take(self, language: str, beginning: str = "") -> list[str]:
        """Return the texts of its blocks in *language* that begin with *beginning*, for a test that runs them."""
        return [
            block.take()
            for block in self.blocks
            if block.language == language and block.text.startswith(beginning)
        ]

    def commands(self) -> list[list[str]]:
        """Return the words of each command in its blocks without a language, in their order."""
        return [shlex.split(line) for text in self.take("") for line in text.splitlines()]


def to_run() -> set[BlockPosition]:
    """Return all blocks of the tutorials and the how-to pages but pictures, and README's example."""
    pages = [Page(path) for part in ("tutorial", "how-to") for path in (DOCS / part).glob("*.md")]
    positions = {block.place for page in pages for block in page.blocks if block.language not in SHOWN_ONLY}
    return positions | {block.place for block in Page(ROOT / "README.md").blocks if block.language in EXAMPLE}


def have_run() -> set[BlockPosition]:
    """Return the blocks that ran in this process, or in one that a test started."""
    return _placed | {position for position, path in _written if _is_compiled(path)}


def _is_compiled(path: Path) -> bool:
    return any((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))


def blocks_of(page: str, text: str) -> tuple[Block, ...]:
    """Return the blocks of a page with this text."""
    return tuple(_blocks(page, text))


def _blocks(page: str, text: str) -> Iterator[Block]:
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        yield Block((page, line), fence[1], tuple(fence[2].split()), fence[3])
