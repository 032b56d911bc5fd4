"""The tutorial, by a reader who types what stands there and looks whether it shows what the page shows.

Two things are not as on their host: `pip install` takes a wheel of this tree, its dependencies are those of
this environment; and the port is one that is free.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.cli import ROOT
from tests.support.pages import Page
from tests.support.ports import free_port
from tests.support.terminals import Reader

pytestmark = pytest.mark.slow

PAGES = sorted(path.name for path in (ROOT / "docs/tutorial").glob("*.md"))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


def lend_dependencies(venv: Path) -> None:
    """Let the reader's environment have what ours has, after what it has itself."""
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


@pytest.mark.parametrize("name", PAGES)
async def test_a_reader_sees_what_the_page_shows(name: str, tmp_path: Path, wheels: Path) -> None:
    tools, folder = tmp_path / "tools", tmp_path / "project"
    tools.mkdir()
    folder.mkdir()
    (tools / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    environ = {
        "PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin",
        "HOME": os.environ["HOME"],
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    faulthandler.cancel_dump_traceback_later()  # each step has a bound of its own, and there are many
    reader = Reader(folder, environ, {"8081": str(free_port())})
    try:
        for block in Page(f"tutorial/{name}").blocks:
            await reader.follow(block)
            if "pip install" in block.text:
                lend_dependencies(folder / ".venv")
    finally:
        await reader.close()
