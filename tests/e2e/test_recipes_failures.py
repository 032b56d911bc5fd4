"""The page on failed calls: its commands and settings run as they stand."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.e2e.test_recipes import HOW_TO
from tests.e2e.test_recipes_gate import COMMANDS
from tests.support.cli import Shell

pytestmark = pytest.mark.slow

PAGE = (HOW_TO / "failures.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


async def test_failures(shell: Shell) -> None:
    shell.settings("")
    (shell.folder / "busy.txt").write_text(blocks("http")[0])
    added = await shell("connections", "add", "-t", "acme", "-p", "stripe", stdin=shell.secret("key"))
    assert added.code == 0, added.err
    said = []
    for line in COMMANDS.findall(PAGE):
        done = await shell(*shlex.split(line)[1:])
        assert (done.code, done.err) == (0, ""), (line, done)
        said.append(done.out)
    assert len(said) == 3
    assert "transient_network" in said[0]
    assert "unclassified           yes" in said[0]
    assert "catalogue_busy (the connection), by status" in said[2]
    (overlay,) = blocks("toml")
    shell.settings(overlay)
    laid_over = await shell("config", "test-response", "busy.txt", "--provider", "stripe")
    assert "catalogue_busy (provider stripe), by status" in laid_over.out


def test_the_page_names_every_rule_and_strategy() -> None:
    from fairlead.policy.classify.rules import shipped
    from fairlead.policy.classify.strategy import StrategyName

    page = HOW_TO / "failures.md"
    assert page.name == "failures.md"
    for name in (*(rule.name for rule in shipped()), *StrategyName):
        assert f"`{name}`" in PAGE, name
