"""``fairlead init``: make a commented settings file and a master key, which only their owner can read.

It does not use `cli.kit.changes`: before it has run there is no database, so no runtime and no audit trail.
Existing files are kept, so there is nothing to confirm.
"""

from __future__ import annotations

import os
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer

from fairlead.cli.kit.changes import DryRun
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single
from fairlead.errors import InvalidConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

app = single()

USUAL_FILE = Path("fairlead.toml")

HEAD = """\
# Settings of fairlead. A line like `#name = value` shows a default; where it shows "", the comment gives it.
# Remove the "#" to change it.
# The environment takes precedence over this file: FAIRLEAD_WORKER__CONCURRENCY=8 sets [worker] concurrency;
# DATABASE_URL, REDIS_URL, LOG_LEVEL and LOG_FORMAT are understood as everywhere.
# `fairlead config show --origin` shows the values in effect, `fairlead doctor` checks whether they work.
"""

EXAMPLE = """\
# Your apps, one table for each provider (`fairlead providers list`).
#[providers.mercadolibre]
#client_id = "1234567890"
#client_secret_file = "/run/secrets/mercadolibre"
"""


@command(app, "init")
def init(
    call: Invocation,
    force: Annotated[
        bool, typer.Option("--force", help="Write the settings file anew if there is one. A key is kept.")
    ] = False,
    dry_run: DryRun = False,
) -> Exit | None:
    """Make a settings file with comments, and a master key, which only you can read (mode 0600).

    Existing files are kept, and reported; a master key is never overwritten.
    """
    file = call.options.config_file or USUAL_FILE
    rows = [{"what": "settings", "path": file, "done": _write_settings(file, force=force, dry_run=dry_run)}]
    home = _home(call, file)
    key = home / "master.key"
    rows.append({"what": "master key", "path": key, "done": _write_key(call, key, dry_run=dry_run)})
    call.out.rows(rows, ("what", "path", "done"))
    call.out.say("next: put your apps into the settings file, then `fairlead doctor`")
    call.out.say(f"keep a copy of {key} in a safe place: without it the stored credentials cannot be opened")
    return None


def _write_settings(file: Path, *, force: bool, dry_run: bool) -> str:
    """Write the settings file, and return what was done."""
    exists = file.exists()
    if exists and not force:
        return "kept"
    if not dry_run:
        with _FileErrors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            # It may hold secrets. The mode of an existing file is kept: its owner chose it.
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as written:
                written.write(settings_text())
    return ("would be " if dry_run else "") + ("replaced" if exists else "created")


def _home(call: Invocation, file: Path) -> Path:
    """Return the folder of the key by the settings; a settings file that is not written yet counts as empty."""
    from fairlead.assembly.config import load

    return load(os.environ, file if file.exists() else None, call.flags).settings.home


def _write_key(call: Invocation, key: Path, *, dry_run: bool) -> str:
    """Create the file *key* with a new master key if it does not exist, and return what was done."""
    from fairlead.assembly.stores import new_master_key

    if os.path.lexists(key):
        return "kept"
    if dry_run:
        return "would be created"
    with _FileErrors(key):
        key.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:  # another `init` was faster: its key is the one
            return "kept"
        with os.fdopen(descriptor, "w", encoding="ascii") as written:
            written.write(f"{new_master_key().reveal()}\n")
            written.flush()
            os.fsync(written.fileno())
    return "created"


class _FileErrors:
    """A context that turns a file system error into one with a hint."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, PermissionError):
            raise InvalidConfigError(
                f"{self._path} cannot be written: {error.strerror}", hint="choose another path"
            ) from None


# ---- the file ------------------------------------------------------------------------------------


def settings_text() -> str:
    """Return the settings file: every setting as a comment, with its meaning and default."""
    from fairlead.assembly.settings import Settings

    top = [line for name in Settings.model_fields for line in _setting(Settings, name, tables=False)]
    parts = ["\n".join([HEAD, *top])]
    for name, entry in Settings.model_fields.items():
        table = _table_model(entry.annotation)
        if table is not None:
            lines = [line for field in table.model_fields for line in _setting(table, field, tables=True)]
            parts.append("\n".join([*_comment(_first(table)), f"[{name}]", *lines]))
    return "\n\n".join([*parts, EXAMPLE])


def _setting(model: type[BaseModel], name: str, *, tables: bool) -> Iterator[str]:
    entry = model.model_fields[name]
    if not tables and (_table_model(entry.annotation) is not None or get_origin(entry.annotation) is dict):
        return
    yield from _comment(entry.description or "")
    yield f"#{name} = {_example(entry.annotation, entry.default)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ")


def _table_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a setting that is a table, else None."""
    from pydantic import BaseModel

    is_table = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_table else None


def _first(table: type[BaseModel]) -> str:
    """Return the first paragraph of a table's docstring as one line."""
    paragraph = (table.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split())


def _example(annotation: Any, default: Any) -> str:
    """Return the default as TOML, or an empty value of the right type if there is none."""
    if default is None:
        inner = [part for part in get_args(annotation) if part is not type(None)]
        union = get_origin(annotation) in (Union, types.UnionType)
        return "0" if union and int in inner else '""'
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return str(int(default) if float(default).is_integer() else default)
    if isinstance(default, tuple):
        return f"[{', '.join(_example(None, item) for item in default)}]"
    return f'"{default}"'
