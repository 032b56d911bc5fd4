"""The page on production: its commands run in their order, and the events that it names are there."""

from __future__ import annotations

import re

import pytest

from fairlead.events import Event
from tests.e2e.test_recipes import HOW_TO, SETTINGS
from tests.e2e.test_recipes_gate import gated  # noqa: F401 - a fixture
from tests.support.cli import Shell
from tests.support.pages import Page

pytestmark = pytest.mark.slow
PAGE = "operate.md"


def _below(event: type[Event]) -> set[str]:
    return {name for subclass in event.__subclasses__() for name in (subclass.name, *_below(subclass))}


async def test_every_command_of_the_page(gated: Shell) -> None:  # noqa: F811
    gated.settings(SETTINGS)
    added = await gated("connections", "add", "-t", "acme", "-p", "stripe", stdin=gated.secret("key"))
    assert added.code == 0, added.err
    commands = Page(f"how-to/{PAGE}").commands()
    assert len(commands) >= 10
    for name, *command in commands:
        assert name == "fairlead"
        done = await gated(*command)
        assert done.code == (4 if command == ["status"] else 0), (command, done)  # no process is at work here


def test_the_events_to_be_woken_up_for_are_there() -> None:
    text = (HOW_TO / PAGE).read_text("utf-8")
    table = text.partition("## Watch")[2]
    named = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert len(named) > 5
    assert named <= _below(Event)
