"""What pyproject declares, the code imports, and the lock pins are one set."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lint.tree import PACKAGE, ROOT, Source, sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]


def third_party(files: Iterable[Source]) -> set[str]:
    """Return the top-level modules that are neither ours nor Python's."""
    modules: set[str] = set()
    for source in files:
        for node in ast.walk(source.tree()):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.split(".")[0])
    return modules - sys.stdlib_module_names - {"fairlead"}


def undeclared(modules: Iterable[str], declared: Iterable[Requirement]) -> list[str]:
    homes = packages_distributions()
    names = {canonicalize_name(requirement.name) for requirement in declared}
    return sorted(m for m in modules if not names & {canonicalize_name(home) for home in homes.get(m, [])})


def unused(modules: Iterable[str], declared: Iterable[Requirement]) -> list[str]:
    homes = packages_distributions()
    used = {canonicalize_name(home) for module in modules for home in homes.get(module, [])}
    return sorted(
        requirement.name for requirement in declared if canonicalize_name(requirement.name) not in used
    )


def pins(lock: str) -> dict[str, str]:
    return {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    }


def unlocked(declared: Iterable[Requirement], locked: dict[str, str]) -> list[str]:
    """Return the requirements that the lock does not fulfil, because `make lock` was forgotten."""
    return [
        str(requirement)
        for requirement in declared
        if requirement.name != PROJECT["name"] and not _fulfils(requirement, locked)
    ]


def _fulfils(requirement: Requirement, locked: dict[str, str]) -> bool:
    version = locked.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version)


def test_everything_imported_is_declared() -> None:
    assert undeclared(third_party(sources(PACKAGE)), RUNTIME + EXTRAS) == []


def test_everything_declared_is_imported() -> None:
    assert unused(third_party(sources(PACKAGE)), RUNTIME) == []


def test_the_lock_fulfils_what_is_declared() -> None:
    locked = pins((ROOT / "requirements/dev.txt").read_text())
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert unlocked([*RUNTIME, *EXTRAS, *map(Requirement, build)], locked) == []


def test_undeclared_unused_and_unlocked_packages_are_found() -> None:
    code = Source(
        f"{PACKAGE}/x.py",
        "import pytest.mark\nfrom structlog import get_logger\nimport os, fairlead._core.ids\n",
    )
    assert third_party([code]) == {"pytest", "structlog"}
    assert undeclared({"pytest", "structlog"}, [Requirement("structlog>=1")]) == ["pytest"]
    assert unused({"structlog"}, [Requirement("structlog"), Requirement("rich")]) == ["rich"]
    declared = [Requirement("rich>=16"), Requirement("typer"), Requirement("redis[hiredis]>=6")]
    assert unlocked(declared, pins("rich==15.0.0 \\\nredis==8.1.0 \\\n")) == ["rich>=16", "typer"]


PORTS = "fairlead.engine.ports"


def past_the_facade(source: Source) -> list[str]:
    """Return the imports of a module of the ports, which are imported from their package everywhere else."""
    if source.within("src/fairlead/engine/ports"):
        return []
    return [
        f"{source.path}:{node.lineno}: {module}"
        for node in ast.walk(source.tree())
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if module.startswith(f"{PORTS}.")
    ]


def test_ports_are_imported_from_their_package() -> None:
    assert [
        line for source in sources("src", "tests", "bench", "tools") for line in past_the_facade(source)
    ] == []


def test_import_past_the_facade_is_found() -> None:
    planted = f"import {PORTS}.http\nfrom {PORTS}.jobs import Job\n"
    assert len(past_the_facade(Source("tests/planted.py", planted))) == 2
    assert past_the_facade(Source("src/fairlead/engine/ports/planted.py", planted)) == []
