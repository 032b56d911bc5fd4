"""S34: what is no setting is refused and not repeated, and no secret is a word of a command line."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fairlead.assembly.config import load
from fairlead.assembly.settings import Settings
from fairlead.cli.registry import COMMANDS, LazyCommand
from fairlead.errors import InvalidConfigError
from tests.security.figures import tell

SECRET = "hunter2hunter2"
PLAIN = """
import os, sys
os.umask(0)
from fairlead.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The command line under a careless umask."""


def tables(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each table of the settings; one of a mapping under some name."""
    yield path
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                by_name = ("stripe",) if kind is not field.annotation else ()
                yield from tables(kind, (*path, name, *by_name))


TABLES = list(tables())


@pytest.mark.parametrize("table", TABLES, ids=".".join)
def test_a_key_that_nobody_knows_is_refused_in_each_table(table: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text(f'{".".join((*table, "nonsense"))} = "{SECRET}"\n')
    with pytest.raises(InvalidConfigError, match="nonsense is not a known setting") as in_file:
        load({}, file)
    variable = "FAIRLEAD_" + "__".join((*table, "nonsense")).upper()
    strict = {} if table else {"FAIRLEAD_STRICT_ENV": "1"}  # without `__` it may be another program's
    with pytest.raises(InvalidConfigError, match=r"(?i)nonsense\b.* not a") as in_environment:
        load({variable: SECRET, **strict})
    assert SECRET not in f"{in_file.value}{in_environment.value}"


def test_there_are_tables() -> None:
    assert len(TABLES) >= 12
    tell("S34", n=len(TABLES), unknown_taken=0)


NAMES = sorted(
    {name for table in TABLES for name in table} | {"url", "level", "client_secret", "overlay", "x"}
)
VALUES = st.one_of(st.just(SECRET), st.booleans(), st.integers(), st.floats(), st.lists(st.just(SECRET)))
TREES = st.recursive(
    VALUES, lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=4), max_leaves=8
)


@given(st.dictionaries(st.sampled_from(NAMES), TREES, max_size=4))
def test_any_tree_is_settings_or_a_refusal_that_repeats_no_value(tree: Mapping[str, Any]) -> None:
    assert SECRET not in told_of(dict(leaves(tree)))


def told_of(flags: dict[tuple[str, ...], Any]) -> str:
    """What is refused of *flags*; where nothing is, what is shown of the secrets among them."""
    try:
        config = load({}, None, flags)
    except InvalidConfigError as refused:
        return str(refused)
    secret_fields = ("client_secret", "master_key", "webhook_secret", "webhook_url", "url")
    return " ".join(value for name, value, _ in config.rows() if name.endswith(secret_fields))


def leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


# ---- the command line ----------------------------------------------------------------------------


def options() -> Iterator[tuple[str, str, str]]:
    """Command, option and what it takes, of all commands."""

    def walk(command: Any, words: str) -> Iterator[tuple[str, str, str]]:
        for parameter in (param for param in command.params if not getattr(param, "is_flag", False)):
            yield words, " ".join(parameter.opts), str(parameter.metavar or "")
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{words} {name}")

    for name, entry in COMMANDS.items():
        yield from walk(LazyCommand(name, entry).load(), name)


def test_no_secret_is_a_word_of_a_command_line() -> None:
    """History and `ps` keep it: the one option for secrets takes the place where one is."""
    words = ("secret", "password", "token", "api-key", "private", "master")
    matching = [option for option in options() if any(word in option[1] for word in words)]
    assert {(option, takes) for _, option, takes in matching} == {("--secret", "NAME=SOURCE")}
    assert {"connections add"} <= {command for command, _, _ in matching}


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_that_fairlead_writes_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask: settings, key, journal, exports."""
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "DATABASE_URL": "postgresql://x@127.0.0.1:1/y",
        "FAIRLEAD_HTTP__ALLOW_PRIVATE_ADDRESSES": "true",
    }
    for arguments in (["init"], ["doctor"]):
        done = subprocess.run(
            [sys.executable, "-c", PLAIN, *arguments],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode in (0, 4), done.stderr
    paths = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*")}
    assert {"fairlead.toml", ".fairlead/master.key"} <= set(paths)
    open_to_others = {
        name: oct(stat.S_IMODE(path.stat().st_mode))
        for name, path in paths.items()
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077
    }
    assert open_to_others == {}
