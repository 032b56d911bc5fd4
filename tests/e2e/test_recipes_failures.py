"""The page on failed calls: its commands and settings run as they stand."""

from __future__ import annotations

import pytest

from tests.support.cli import Shell
from tests.support.pages import Page

pytestmark = pytest.mark.slow


async def test_failures(shell: Shell) -> None:
    page = Page("how-to/failures.md")
    shell.settings("")
    (recorded,) = page.take("http")
    (shell.folder / "busy.txt").write_text(recorded)
    added = await shell("connections", "add", "-t", "acme", "-p", "stripe", stdin=shell.secret("key"))
    assert added.code == 0, added.err
    said = []
    for program, *command in page.commands():
        assert program == "fairlead"
        done = await shell(*command)
        assert (done.code, done.err) == (0, ""), (command, done)
        said.append(done.out)
    assert len(said) == 3
    assert "transient_network" in said[0]
    assert "unclassified           yes" in said[0]
    assert "catalogue_busy (the connection), by status" in said[2]
    (overlay,) = page.take("toml")
    shell.settings(overlay)
    laid_over = await shell("config", "test-response", "busy.txt", "--provider", "stripe")
    assert "catalogue_busy (provider stripe), by status" in laid_over.out


def test_the_page_names_every_rule_and_strategy() -> None:
    from fairlead.policy.classify.rules import shipped
    from fairlead.policy.classify.strategy import StrategyName

    for name in (*(rule.name for rule in shipped()), *StrategyName):
        assert f"`{name}`" in Page("how-to/failures.md").text, name
