"""S35: what is installed is what was locked, by hash; it is on a list with its licence; nothing else runs."""

from __future__ import annotations

import doctest
import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.lint.tree import ROOT, files
from tests.security.figures import tell
from tools import licences, packages, sbom
from tools.packages import LOCK, installed, licence_of, locked, needed

LOCKED = locked(LOCK.read_text("utf-8"))
MOST_REQUIRED = 35
"""Packages of a plain install. A new one is a decision: raise this with its reason in docs/design/dependencies.md."""


# ---- the lock ------------------------------------------------------------------------------------


def test_every_package_is_locked_by_hash() -> None:
    assert LOCKED
    assert [pinned.name for pinned in LOCKED if not pinned.hashes] == []
    assert len({pinned.name for pinned in LOCKED}) == len(LOCKED)


def installs(text: str) -> list[str]:
    """The lines of a script that install something."""
    return [
        line for line in text.replace("\\\n", " ").splitlines() if re.search(r"\bpip['\"]? +install\b", line)
    ]


def careless(text: str) -> list[str]:
    """Those that take from outside what no hash holds, or what runs code of its own while it is built."""
    from_outside = [line for line in installs(text) if "--no-deps --no-build-isolation -e ." not in line]
    pip_options = ("--require-hashes", "--only-binary :all:")
    return [line for line in from_outside if not all(option in line for option in pip_options)]


def test_nothing_is_installed_without_its_hash() -> None:
    scripts = list(files(suffixes=(".sh", "")))
    assert any(installs(path.read_text("utf-8")) for path in scripts)
    assert {
        path.name: careless(path.read_text("utf-8")) for path in scripts if careless(path.read_text())
    } == {}
    good = "pip install --require-hashes --only-binary :all: -r x"
    bad = ["pip install -r x", "pip install --require-hashes -r x"]
    assert careless("\n".join([good, *bad])) == bad


def test_tool_that_makes_the_lock_is_locked() -> None:
    tool = locked((ROOT / "requirements/lock-tool.txt").read_text("utf-8"))
    assert [pinned.name for pinned in tool] == ["uv"]
    assert all(pinned.hashes for pinned in tool)
    assert "-r requirements/lock-tool.txt" in installs((ROOT / "tools/lock.sh").read_text("utf-8"))[0]


def test_newer_versions_wait_a_week() -> None:
    resolve = (ROOT / "tools/lock.sh").read_text("utf-8")
    assert '${UPGRADE:+--upgrade "--exclude-newer=${COOL_DOWN:-7 days}"}' in resolve


def test_the_lock_is_what_is_installed_and_few_of_it_is_needed() -> None:
    here = {pinned.name: pinned.version for pinned in LOCKED if pinned.is_for_here}
    assert installed() == here
    plain, extra = needed()
    assert (plain | extra) <= set(here)
    assert len(plain) <= MOST_REQUIRED, sorted(plain)


def test_a_line_that_is_none_of_a_lock_is_told() -> None:
    with pytest.raises(ValueError, match="--index-url"):
        locked("a==1 \\\n    --hash=sha256:" + "0" * 64 + "\n--index-url x")


# ---- a wheel that was tampered with --------------------------------------------------------------


def a_wheel(folder: Path, says: str) -> str:
    """Put the wheel ``tiny`` into *folder*; its SHA-256."""
    folder.mkdir(exist_ok=True)
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    members = {
        "tiny.py": f"WORD = {says!r}\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": f"tiny.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n",
    }
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in members.items():
            packed.writestr(zipfile.ZipInfo(name), text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def set_up(folder: Path, wheels: Path, digest: str) -> subprocess.CompletedProcess[str]:
    """Run the real setup script in *folder*, on a lock of one line."""
    (folder / "requirements").mkdir(exist_ok=True)
    (folder / "requirements/dev.txt").write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "PYTHON", "VIRTUAL"))
    }
    only_here = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(
        ["sh", str(ROOT / "tools/setup.sh"), ".venv"],
        cwd=folder,
        env={**environ, **only_here, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
def test_a_tampered_wheel_is_refused_by_the_setup(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    honest = a_wheel(wheels, "honest")
    good = set_up(tmp_path, wheels, honest)
    there = list(tmp_path.glob(".venv/lib/*/site-packages/tiny.py"))
    assert [path.read_text() for path in there] == ["WORD = 'honest'\n"], good.stderr  # the lock was taken
    there[0].unlink()
    for record in tmp_path.glob(".venv/lib/*/site-packages/tiny-1.0.dist-info/*"):
        record.unlink()
    assert a_wheel(wheels, "evil") != honest
    refused = set_up(tmp_path, wheels, honest)
    assert refused.returncode == 1
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert "hint: " in refused.stderr
    assert list(tmp_path.glob(".venv/lib/*/site-packages/tiny.py")) == []
    assert not (tmp_path / ".venv/.ready").exists()


# ---- the bill of materials -----------------------------------------------------------------------


def test_the_bill_equals_lock_and_environment() -> None:
    document = sbom.of_this_environment()
    assert document == json.loads(json.dumps(document)) == sbom.of_this_environment()  # the same every time
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in document["components"]}  # type: ignore[attr-defined]
    assert {name: part["version"] for name, part in parts.items()} == installed()
    assert all(part["purl"] == f"pkg:pypi/{name}@{part['version']}" for name, part in parts.items())
    hashes = {name: {hash_entry["content"] for hash_entry in part["hashes"]} for name, part in parts.items()}
    assert hashes == {pinned.name: set(pinned.hashes) for pinned in LOCKED if pinned.is_for_here}
    plain, extra = needed()
    scopes = {name: part["scope"] for name, part in parts.items()}
    assert {name for name, scope in scopes.items() if scope == "required"} == plain
    assert {name for name, scope in scopes.items() if scope == "optional"} == extra
    assert [name for name in plain | extra if "licenses" not in parts[name]] == []
    tell("S35", n=len(parts), required=len(plain), optional=len(extra), without_hash=0)


# ---- licences ------------------------------------------------------------------------------------


def test_every_licence_is_on_the_list() -> None:
    plain, extra = licences.shipped()
    assert licences.not_allowed({**plain, **extra}) == {}


def test_an_unknown_licence_is_found() -> None:
    strange = {
        "a": licence_of({"License": "All rights reserved"}),
        "b": licence_of({}),
        "c": licence_of({"License-Expression": "MIT AND GPL-3.0-only"}),
        "d": licence_of({}, ["GNU General Public License v3 (GPLv3)"]),
        "e": "MIT OR Apache-2.0",
    }
    assert sorted(licences.not_allowed(strange)) == ["a", "b", "c", "d"]


BSD = "BSD License"


@pytest.mark.parametrize(
    ("text", "classifiers", "allowed"),
    [
        ("MIT", ["MIT License", "GNU General Public License v3 (GPLv3)"], False),
        ("", ["MIT License", "GNU General Public License v3 (GPLv3)"], False),
        ("MIT", ["Other/Proprietary License"], False),
        ("AGPL, commercial on request", [BSD], False),
        ("AGPL, commercial on request\n\nAsk us.", [BSD], False),
        ("GNU GPLv3\n\nThis program is free software", ["MIT License"], False),
        ("see LICENSE", [BSD], False),
        ("Dual License", [BSD, "Apache Software License"], True),
        ("BSD 3-Clause License\n\nCopyright (c) 2021", [BSD], True),
        ("Copyright (c) 2015\n\nRedistribution and use", [BSD], True),
        ("", [BSD], True),
    ],
)
def test_a_licence_in_doubt_is_none(text: str, classifiers: list[str], allowed: bool) -> None:
    licence = licence_of({"License": text}, classifiers)
    assert (licences.not_allowed({"it": licence}) == {}) is allowed, licence


def test_the_examples_hold() -> None:
    assert doctest.testmod(packages).failed == 0
    assert doctest.testmod(packages).attempted > 0


def test_the_page_is_what_is_installed() -> None:
    page = (ROOT / "docs/reference/licences.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([\w.-]+) \| (.+) \|$", page, re.MULTILINE))
    plain, extra = licences.shipped()
    here = {**plain, **extra}
    assert {name: rows.get(name) for name in here} == here, "run: python -m tools.licences"
    elsewhere = {pinned.name for pinned in LOCKED} - {pinned.name for pinned in LOCKED if pinned.is_for_here}
    assert set(rows) - set(here) - {"package", "---"} <= elsewhere
