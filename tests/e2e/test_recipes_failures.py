"""The page on failed calls: its commands and settings run as they stand."""

from __future__ import annotations

import re

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
    lines = []
    for program, *command in page.commands():
        assert program == "fairlead"
        done = await shell(*command)
        assert (done.code, done.err) == (0, ""), (command, done)
        lines.append(done.out)
    assert len(lines) == 3
    assert "transient_network" in lines[0]
    assert "unclassified           yes" in lines[0]
    assert "catalogue_busy (the connection), by status" in lines[2]
    refused = '{"status": 503, "headers": {"Retry-After": "5"}, "body": {"error": {"code": "MAINTENANCE"}}}'
    (shell.folder / "refused.json").write_text(refused)
    merge_tables = []
    for overlay, file in zip(page.take("toml"), ("busy.txt", "refused.json"), strict=True):
        shell.settings(overlay)
        merge_tables.append((await shell("config", "test-response", file, "--provider", "stripe")).out)
    assert "catalogue_busy (provider stripe), by status" in merge_tables[0]
    assert "maintenance (provider stripe), by provider code" in merge_tables[1]
    assert re.search(r"refused_before_acting +yes", merge_tables[1])


def test_the_page_names_every_rule_and_strategy() -> None:
    from fairlead.policy.calls.classify.rules import builtin_rules
    from fairlead.policy.failures.strategy import StrategyName

    for name in (*(rule.name for rule in builtin_rules()), *StrategyName):
        assert f"`{name}`" in Page("how-to/failures.md").text, name
