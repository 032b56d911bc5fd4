"""What the pages list of the gate is what the code has, and every command that a page shows is there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import pytest

from fairlead.policy.limits.feedback.dialect import DIALECTS
from fairlead.policy.providers.connection_limits import ConnectionLimits
from tests.lint.tree import ROOT, files
from tests.support.pool_verdict import _ACTS as LOGGED

SETTINGS = "| setting | meaning | default |"
READ = "| dialect | it reads |"
WATCHED = "| event | look into it when | then |"
WORDS = "| word | what happened |"
_ARROW = re.compile(r"^    \S+ --> \S+: (\w+)$", re.MULTILINE)
_COMMAND = re.compile(r"(?:`|^|[$|] )fairlead((?: [a-z][a-z-]+)+)", re.MULTILINE)


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def listed(text: str, head: str) -> set[str]:
    """Return the words in code in the first column of the table with this head."""
    table = text.split(f"\n{head}\n", 1)[1].split("\n\n", 1)[0]
    return {word for line in table.splitlines() for word in re.findall(r"`(\w+)`", line.split("|")[1])}


def unknown(text: str, commands: Collection[str]) -> list[str]:
    """Return the commands in *text* that do not exist. Words after a command without subcommands are arguments."""
    leaves = {name for name in commands if not any(other.startswith(f"{name} ") for other in commands)}
    return [
        name
        for name in (command.strip() for command in _COMMAND.findall(text))
        if name not in commands and not any(name.startswith(f"{leaf} ") for leaf in leaves)
    ]


def commands() -> set[str]:
    return set(re.findall(r"^##+ fairlead ([a-z -]+)$", page("docs/reference/cli.md"), re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        ("docs/how-to/limits.md", SETTINGS, ConnectionLimits.model_fields),
        ("docs/how-to/limits.md", READ, DIALECTS),
        ("docs/explanation/gate.md", WORDS, LOGGED),
    ],
)
def test_a_table_lists_them_all(name: str, head: str, words: Mapping[str, object]) -> None:
    assert listed(page(name), head) == set(words)


def test_the_picture_of_a_slot_has_the_words_of_the_log() -> None:
    assert set(_ARROW.findall(page("docs/explanation/gate.md"))) == set(LOGGED)


def test_page_names_every_watched_figure() -> None:
    described = set(re.findall(r"^## `(\w+)`$", page("docs/reference/events.md"), re.MULTILINE))
    watched = listed(page("docs/how-to/gate.md"), WATCHED) - {"slot_lost"}
    assert len(watched) > 5
    assert watched <= described


def test_every_command_that_is_shown_is_there() -> None:
    pages = [
        ROOT / "README.md",
        *files("docs/tutorial", "docs/how-to", "docs/explanation", suffixes=(".md",)),
    ]
    assert {path.name: unknown(path.read_text("utf-8"), commands()) for path in pages} == {
        path.name: [] for path in pages
    }


def test_command_that_does_not_exist_is_found() -> None:
    existing = {"gate", "gate breaker", "gate breaker reset", "run", "jobs show"}
    assert unknown("`fairlead gate breaker reset --host x` and `fairlead run`", existing) == []
    assert unknown("fairlead jobs show some-id\n`fairlead gate brake`\n", existing) == ["gate brake"]
