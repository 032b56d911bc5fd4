"""The page on a provider of your own: its files and commands run as they stand."""

from __future__ import annotations

import pytest

from tests.support.cli import Shell
from tests.support.pages import Page

pytestmark = pytest.mark.slow


async def test_a_provider_of_your_own(shell: Shell) -> None:
    page = Page("how-to/providers.md")
    settings, profile = page.take("toml")
    shell.settings(settings)
    folder = shell.folder / "providers"
    folder.mkdir()
    (folder / "bikes.toml").write_text(profile)
    secret = shell.folder / "bikes.secret"
    secret.write_text(shell.secret("app"))
    secret.chmod(0o600)
    lines = []
    for program, *command in page.commands():
        assert program == "fairlead"
        done = await shell(*command)
        assert done.code == 0, (command, done)
        lines.append(done.out)
    assert len(lines) == 3
    assert "https://api.bikes.example/v1" in lines[1]
    assert "https://auth.bikes.example/oauth/token" in lines[2]
