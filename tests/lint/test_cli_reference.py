"""docs/reference/{cli,exit-codes}.md say what the commands say."""

from __future__ import annotations

import re

from fairlead.cli.kit.exits import MEANINGS, Exit
from fairlead.cli.registry import COMMANDS
from tests.lint.tree import ROOT
from tools import cli_reference


def test_the_pages_are_what_the_code_gives() -> None:
    assert cli_reference.outdated() == [], "run: python -m tools.cli_reference"


def test_every_command_and_code_has_its_place() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    titles = set(re.findall(r"^## fairlead (\w+)$", page, re.MULTILINE))
    assert titles == set(COMMANDS)
    assert set(MEANINGS) == set(Exit)


def commands() -> set[str]:
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    return set(re.findall(r"^#{2,3} fairlead ([\w -]+)$", page, re.MULTILINE))


def missing_commands(text: str, existing: set[str]) -> set[str]:
    """Return the commands that *text* names and that do not exist."""
    names = set(re.findall(r"`fairlead ([a-z]+(?: [a-z]+(?:-[a-z]+)*)?)", text))
    without_subcommands = existing - {
        name.split()[0] for name in existing if " " in name
    }  # they take words, not commands
    return {name for name in names if name not in existing and name.split()[0] not in without_subcommands}


def test_commands_named_in_words_to_people_exist() -> None:
    existing = commands()
    texts = [path.read_text("utf-8") for path in [*sorted((ROOT / "src").rglob("*.py")), *ROOT.glob("*.md")]]
    assert set().union(*(missing_commands(text, existing) for text in texts)) == set()


def test_command_that_does_not_exist_is_found() -> None:
    text = "`fairlead doctor now`, `fairlead jobs show`, `fairlead jobs shwo X`, `fairlead dcotor`"
    assert missing_commands(text, commands()) == {"jobs shwo", "dcotor"}
