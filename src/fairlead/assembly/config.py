"""Reads the settings and records where each value came from.

A flag overrides the environment, which overrides the file, which overrides the default.
``FAIRLEAD_WORKER__LEASE_S=10`` sets ``[worker] lease_s``. A trailing ``_FILE`` reads a secret from a file.
``DATABASE_URL``, ``REDIS_URL``, ``LOG_LEVEL`` and ``LOG_FORMAT`` have their usual meaning. Unknown keys are
refused, all problems are reported together, and the value of a secret is never repeated. A variable that has
the prefix but not the form of a setting causes a warning (see `env_names`). Spec: K1.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

from fairlead._checked_file import CheckedFile, check_private, others_reach, read_checked
from fairlead.assembly.settings import Settings
from fairlead.errors import InvalidConfigError
from fairlead.policy.settings.env_names import PREFIX, is_kubernetes, nearest_variable
from fairlead.policy.text.names import listed
from fairlead.policy.text.redact import redact_values

STRICT = "FAIRLEAD_STRICT_ENV"
"""The variable that turns unknown variables with the prefix from a warning into an error."""
NOT_SETTINGS = frozenset({"FAIRLEAD_CONFIG", "FAIRLEAD_FAULT", STRICT})
STANDARD = {
    "DATABASE_URL": ("database", "url"),
    "REDIS_URL": ("redis", "url"),
    "LOG_LEVEL": ("log", "level"),
    "LOG_FORMAT": ("log", "format"),
    "FAIRLEAD_MASTER_KEY": ("vault", "master_key"),
    "FAIRLEAD_MASTER_KEY_FILE": ("vault", "master_key_file"),
}
SECRETS_FROM_FILES = frozenset(
    {
        ("database", "url"),
        ("redis", "url"),
        ("notifications", "webhook_secret"),
        ("notifications", "webhook_url"),
    }
)

SettingPath = tuple[str, ...]
"""The names of the tables that lead to a setting, and its own name, such as ("worker", "lease_s")."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of this process.

    Attributes:
        origins: The source of each value that is not a default: a file, a variable or a flag.
        unknown_variables: Variables of the environment with the prefix that are not settings.
    """

    settings: Settings
    origins: Mapping[SettingPath, str]
    unknown_variables: tuple[str, ...] = ()

    @property
    def warning(self) -> str | None:
        """A line for the operator about unknown variables; None if there are none."""
        if not self.unknown_variables:
            return None
        return f"{listed(self.unknown_variables, 10)} in the environment: not a setting of fairlead, ignored"

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield each setting as (dotted name, value with secrets masked, origin)."""
        for path, value in _flatten(self.settings):
            yield ".".join(path), _shown(value), self._origin(path)

    def _origin(self, path: SettingPath) -> str:
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return "default"


def load(
    environ: Mapping[str, str], file: Path | str | None = None, flags: Mapping[SettingPath, Any] | None = None
) -> Config:
    """Read the settings.

    Args:
        file: The settings file. Default ``FAIRLEAD_CONFIG``, else ./fairlead.toml if it exists.
        flags: Values of the command line.

    Raises:
        InvalidConfigError: The settings are not valid. The message names every problem and its origin.
    """
    values: dict[SettingPath, Any] = {}
    origins: dict[SettingPath, str] = {}
    unknown, problems = _unknown_variables(environ)
    settings_file = _settings_file(environ, file)
    checked = _read(settings_file) if settings_file else None
    sources = [
        _from_file(checked) if checked else {},
        _from_environment(environ),
        {path: (value, "flag") for path, value in (flags or {}).items()},
    ]
    for source in sources:
        for path, (value, origin) in source.items():
            values[path] = value
            origins[path] = origin
    settings = _validated(values, origins, problems)
    holds_secret = any(path in sources[0] and masked(at) != at for path, at in _flatten(settings))
    if checked and holds_secret and others_reach(checked.file):
        check_private(checked.file, checked.about)
    return Config(settings, origins, tuple(unknown))


def _settings_file(environ: Mapping[str, str], file: Path | str | None) -> Path | None:
    explicit = file or environ.get("FAIRLEAD_CONFIG")
    path = Path(explicit or "fairlead.toml")
    if explicit and not path.exists():
        raise InvalidConfigError(f"there is no settings file {explicit}", hint="`fairlead init` makes one")
    return path if explicit or path.is_file() else None


def _read(file: Path) -> CheckedFile:
    try:
        return read_checked(file)
    except OSError as error:
        raise InvalidConfigError(f"{file} cannot be read: {error.strerror}", hint="check its owner") from None


def _from_file(checked: CheckedFile) -> dict[SettingPath, tuple[Any, str]]:
    try:
        tree = tomllib.loads(checked.data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{checked.file} is not TOML: {error}"
        raise InvalidConfigError(message, hint="correct the line named above") from None
    return {path: (value, str(checked.file)) for path, value in _settings_in(tree)}


def _settings_in(tree: Mapping[str, Any], path: SettingPath = ()) -> Iterator[tuple[SettingPath, Any]]:
    """Yield the path and the value of each setting. The overlay of a profile is one value, whatever it holds."""
    for key, value in tree.items():
        if isinstance(value, dict) and key != "overlay":
            yield from _settings_in(value, (*path, key))
        else:
            yield (*path, key), value


def _from_environment(environ: Mapping[str, str]) -> dict[SettingPath, tuple[Any, str]]:
    values: dict[SettingPath, tuple[Any, str]] = {}
    for name, text in environ.items():
        if _is_foreign(name):
            continue
        path = STANDARD.get(name) or _path_of(name)
        if not text.strip():
            _check_may_be_empty(name, path)
        if text and path is not None:
            path, value = _file_secret(path, text, name)
            values[path] = (value, f"environment {name}")
    return values


def _check_may_be_empty(name: str, path: SettingPath | None) -> None:
    """Raise InvalidConfigError if an empty variable would silently select other servers or another key.

    Any other empty variable counts as unset.
    """
    required = {("database", "url"), ("redis", "url"), ("vault", "master_key"), ("vault", "kms")}
    if path and (*path[:-1], path[-1].removesuffix("_file")) in required:
        raise InvalidConfigError(f"{name} is set and empty", hint=f"give {name} a value, or unset it")


def _unknown_variables(environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the variables with the prefix that are not settings, and the problems that they cause.

    A misspelt setting is a problem always, any other name if `STRICT` is set.
    """
    foreign = {name for name, text in environ.items() if text and _is_foreign(name)} - NOT_SETTINGS
    unknown = sorted(name for name in foreign if not is_kubernetes(name, environ[name]))
    suggestions = {name: nearest_variable(name, variables()) for name in unknown}
    problems = [f"{name} is not a known setting, {near} is" for name, near in suggestions.items() if near]
    others = [name for name, near in suggestions.items() if near is None]
    if others and _is_strict(environ.get(STRICT, "")):
        problems.append(f"{listed(others, 10)}: not a setting, and {STRICT} refuses these")
    return others, problems


def _is_strict(text: str) -> bool:
    try:
        return TypeAdapter(bool).validate_python(text or "0")
    except ValidationError:
        raise InvalidConfigError(
            f"{STRICT} is neither true nor false", hint=f"set {STRICT}=1, or unset it"
        ) from None


def _is_foreign(name: str) -> bool:
    """Return whether a variable has the prefix but not the form of a setting."""
    if name in STANDARD or not name.startswith(PREFIX) or "__" in name:
        return False
    return name in NOT_SETTINGS or name.removeprefix(PREFIX).lower() not in Settings.model_fields


@cache
def variables() -> tuple[str, ...]:
    """Return the variable of each setting, except those of providers' apps."""
    names = [PREFIX + "__".join(path).upper() for path in _paths(Settings)]
    files = [PREFIX + "__".join(path).upper() + "_FILE" for path in sorted(SECRETS_FROM_FILES)]
    return (
        *names,
        *files,
        *(name for name in STANDARD if name.startswith(PREFIX)),
        "FAIRLEAD_CONFIG",
        STRICT,
    )


def _paths(table: type[BaseModel], path: SettingPath = ()) -> Iterator[SettingPath]:
    for name, field in table.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _paths(kind, (*path, name))
        elif get_origin(kind) is not dict:
            yield (*path, name)


def _path_of(name: str) -> SettingPath | None:
    if name.endswith("_FILE") and name.removesuffix("_FILE") in STANDARD:
        path = STANDARD[name.removesuffix("_FILE")]
        return (*path[:-1], path[-1] + "_file")
    if not name.startswith(PREFIX):
        return None
    return tuple(part.lower() for part in name.removeprefix(PREFIX).split("__"))


def _file_secret(path: SettingPath, text: str, name: str) -> tuple[SettingPath, Any]:
    plain = (*path[:-1], path[-1].removesuffix("_file"))
    if path[-1].endswith("_file") and plain in SECRETS_FROM_FILES:
        try:
            return plain, read_checked(Path(text), is_secret=True).data.decode().strip()
        except OSError as error:
            raise InvalidConfigError(f"{name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidConfigError(f"{name} names a file that is not text") from None
    return path, _listed(text) if _is_list(path) else text


def _is_list(path: SettingPath) -> bool:
    model: Any = Settings
    for part in path[:-1]:
        if get_origin(model) is dict:  # a table for each name
            model = get_args(model)[1]
            continue
        field = getattr(model, "model_fields", {}).get(part)
        model = field.annotation if field else None
    field = getattr(model, "model_fields", {}).get(path[-1])
    return field is not None and str(field.annotation).startswith("tuple")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _validated(
    values: Mapping[SettingPath, Any], origins: Mapping[SettingPath, str], problems: Sequence[str]
) -> Settings:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        table = tree
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise InvalidConfigError(f"{'.'.join(path)} is set both as a value and as a table")
        table[path[-1]] = value
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        problems = [*problems, *(_problem(item, origins) for item in error.errors())]
        raise InvalidConfigError("; ".join(problems)) from None
    if problems:
        raise InvalidConfigError("; ".join(problems))
    return settings


def _problem(item: Any, origins: Mapping[SettingPath, str]) -> str:
    path = tuple(str(part) for part in item["loc"])
    origin = next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), "")
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if item["type"] == "extra_forbidden":
        message = f"is not a known setting{_suggestion(path, in_file=not origin.startswith('environment '))}"
    return f"{'.'.join(path)} {message}" + (f" [{origin}]" if origin else "")


def _suggestion(path: SettingPath, *, in_file: bool) -> str:
    near = nearest_variable(PREFIX + "__".join(path), variables())
    if near and in_file:
        near = near.removeprefix(PREFIX).replace("__", ".").lower()
    return f", {near} is" if near else ""


def _flatten(table: BaseModel, path: SettingPath = ()) -> Iterator[tuple[SettingPath, Any]]:
    for name in type(table).model_fields:
        yield from _flatten_value(getattr(table, name), (*path, name))


def _flatten_value(value: Any, path: SettingPath) -> Iterator[tuple[SettingPath, Any]]:
    if isinstance(value, BaseModel):
        yield from _flatten(value, path)
    elif isinstance(value, dict) and value and path[-1] != "overlay":
        for key, inner in value.items():
            yield from _flatten_value(inner, (*path, key))
    else:
        yield path, value


def masked(value: Any, name: str = "") -> Any:
    """Return *value* with its secrets masked. In an overlay they are recognised by their names and forms."""
    if isinstance(value, dict):
        return {key: masked(inner, key) for key, inner in value.items()}
    if name and "://" not in str(value):
        return cast(dict[str, Any], redact_values({name: value}))[name]
    return "***" if isinstance(value, SecretStr) else value


def _shown(value: Any) -> str:
    value = masked(value)
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value) or "-"
    return "-" if value is None or value == {} else str(value)
