"""Files that hold secrets or rule what fairlead does are opened in one place: fairlead._checked_file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.lint.tree import PACKAGE, ROOT, Source, findings, planted

_READS = {"read_text", "read_bytes"}
_PRIVATE_FILE = "a file that this process or its parent made, in a folder of its own"
ALLOWED = {
    "_checked_file.py": "the one place",
    "adapters/embedded": _PRIVATE_FILE,
    "adapters/journal": f"{_PRIVATE_FILE}, with checks of its own",
    "adapters/local": "what the kernel says",
    "adapters/postgres/migration_files.py": "part of the package",
    "adapters/postgres/statements.py": "part of the package",
    "adapters/redis/scripts.py": "part of the package",
    "assembly/doctor": "what the kernel says",
    "cli/entry.py": "the null device",
    "cli/init.py": "written, never read",
    "cli/connections/transfer.py": "a new file, written",
    "cli/vault.py": "a new file, written in place of the old one",
    "cli/config/test_response.py": "an answer to look at: it holds no secret of ours and rules nothing",
    "demo": _PRIVATE_FILE,
    "policy/calls/classify/rules.py": "part of the package",
    "policy/providers/profile_load.py": "part of the package; all others go through read_checked",
    "testing": "no part of what runs",
}


def bare_reads(source: Source) -> Iterator[str]:
    if source.within(*(f"{PACKAGE}/{path}" for path in ALLOWED)):
        return
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.Call) and _opens(node):
            yield f"{source.path}:{node.lineno}: a file is opened unchecked hint: fairlead._checked_file"


def _opens(node: ast.Call) -> bool:
    """Return whether *node* opens a file: ``open()``, ``os.open()``, ``path.open("r")``, ``path.read_text()``."""
    if isinstance(node.func, ast.Name):
        return node.func.id == "open"
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in _READS:
        return True
    of_os = isinstance(node.func.value, ast.Name) and node.func.value.id in ("os", "io")
    texts = [arg for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    is_mode = bool(texts) or any(keyword.arg in ("encoding", "mode") for keyword in node.keywords)
    return node.func.attr == "open" and (of_os or is_mode)


def test_files_are_opened_in_one_place() -> None:
    assert findings(bare_reads, PACKAGE) == []


@pytest.mark.parametrize(
    "text",
    [
        "open('secret')",
        "Path('secret').read_text()",
        "file.read_bytes()",
        "file.open(encoding='utf-8')",
        "file.open('rb')",
        "os.open(file, os.O_RDONLY)",
    ],
)
def test_a_bare_read_is_found(text: str) -> None:
    assert planted(bare_reads, text)
    assert not planted(bare_reads, "await journal.open()\nvault.open(context, sealed)")


def test_each_place_that_may_open_files_is_there() -> None:
    assert all((ROOT / f"{PACKAGE}/{path}").exists() for path in ALLOWED)
