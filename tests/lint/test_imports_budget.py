"""`fairlead --version` is typed in shells and health checks: it must not load servers' drivers."""

from __future__ import annotations

import json
import subprocess
import sys

import fairlead

HEAVY = {"aiohttp", "asyncpg", "cryptography", "redis", "structlog"}

_PROBE = """
import contextlib, io, json, sys
out, code = io.StringIO(), None
sys.argv = ["fairlead", *sys.argv[1:]]
with contextlib.redirect_stdout(out):
    try:
        from fairlead.cli import main
        code = main()
    except SystemExit as end:
        code = end.code
print(json.dumps({"code": code or 0, "out": out.getvalue(), "modules": sorted(sys.modules)}))
"""


def _run(*arguments: str) -> tuple[int, str, set[str]]:
    """Exit code, standard output and loaded modules of one `fairlead` command in a fresh interpreter."""
    command = [sys.executable, "-c", _PROBE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    report = json.loads(done.stdout)
    return report["code"], report["out"], set(report["modules"])


def test_version_is_quick() -> None:
    code, out, modules = _run("--version")
    assert (code, fairlead.__version__ in out) == (0, True)
    assert HEAVY & modules == set()


def test_help_is_quick() -> None:
    code, out, modules = _run("--help")
    assert (code, "demo" in out) == (0, True)
    assert HEAVY & modules == set()


def test_the_probe_sees_what_is_loaded() -> None:
    probe = _PROBE.replace("from fairlead.cli import main", "import structlog; main = lambda: 3")
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    report = json.loads(done.stdout)
    assert report["code"] == 3
    assert HEAVY & set(report["modules"]) == {"structlog"}
