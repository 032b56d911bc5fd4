"""The README's Python runs as it stands."""

from __future__ import annotations

import textwrap

from tests.e2e.test_app import connect, issuer, made  # noqa: F401 - fixtures
from tests.support.pages import ROOT, Page


async def test_the_python_blocks_run(made, issuer, tmp_path, monkeypatch, capsys, database_settings) -> None:  # noqa: F811
    async with made as fl:
        await connect(fl, issuer)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database_settings.dsn)
    monkeypatch.setenv("FAIRLEAD_MASTER_KEY", "k1:" + "0123456789abcdef" * 4)
    monkeypatch.setenv("FAIRLEAD_DATABASE__SCHEMA_NAME", database_settings.in_schema)
    for block in Page(ROOT / "README.md").take("python"):
        code = "async def main():\n" + textwrap.indent(block, "    ")
        scope: dict[str, object] = {}
        exec(compile(code, "README.md", "exec"), scope)
        await scope["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out.startswith("*** 20")
