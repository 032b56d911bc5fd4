"""How secrets come in: never as a word of the command line, where history and `ps` keep them.

``--secret NAME=SOURCE`` tells where one is: ``env:VARIABLE``, ``file:PATH``, ``-`` for standard input, or
``prompt``. Without any, a person is asked for the one that the provider needs, and a script hands it in on
standard input: the bare secret, or one JSON object of several.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from fairlead._checked_file import read_checked
from fairlead._core.secret import Secret
from fairlead.cli.kit.names import parse_pairs
from fairlead.errors import InvalidInputError

NAMES = ("access_token", "refresh_token", "api_key", "client_secret", "private_key")
MAX_BYTES = 1 << 20
_PLAIN = re.compile(r"[a-z_]{1,20}")

SecretSources = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        metavar="NAME=SOURCE",
        help="Where a secret is: env:VARIABLE, file:PATH, - (standard input) or prompt. "
        f"Names: {', '.join(NAMES)}.",
    ),
]


def read_secrets(given: Sequence[str] | None, needed: str | None) -> dict[str, Secret]:
    """The secrets by name; *needed* is asked for where none was given (None: nothing is needed)."""
    sources = parse_pairs(given, "--secret")
    if set(sources) - set(NAMES):  # not repeated: it may be the beginning of a secret
        raise InvalidInputError("--secret gives no name of a secret", hint=f"one of: {', '.join(NAMES)}")
    if list(sources.values()).count("-") > 1:
        raise InvalidInputError(
            "standard input holds one secret", hint="hand in a JSON object, without --secret"
        )
    if sources:
        return {name: _from(name, source) for name, source in sources.items()}
    if needed is None:
        return {}
    if sys.stdin.isatty():
        return {needed: _prompted(needed)}
    return _from_stdin(needed)


def _from(name: str, source: str) -> Secret:
    kind, _, place = source.partition(":")
    if source == "-":
        return _checked(name, _stdin())
    if source == "prompt":
        return _prompted(name)
    if kind == "env" and place:
        if place not in os.environ:
            raise InvalidInputError(
                f"{place} is not set in the environment", hint=f"it should hold the {name}"
            )
        return _checked(name, os.environ[place])
    if kind == "file" and place:
        return _checked(name, _file(Path(place)))
    raise InvalidInputError(
        f"--secret {name}=... names no source",
        hint="a secret itself is no source: env:VARIABLE, file:PATH, -, prompt",
    )


def _file(path: Path) -> str:
    try:
        return read_checked(path, most_bytes=MAX_BYTES, is_secret=True, error=InvalidInputError).data.decode()
    except PermissionError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read ({type(error).__name__})", hint="name a text file"
        ) from None


def _prompted(name: str) -> Secret:
    return _checked(name, typer.prompt(name.replace("_", " "), hide_input=True, err=True))


def _stdin() -> str:
    return sys.stdin.read(MAX_BYTES)


def _from_stdin(needed: str) -> dict[str, Secret]:
    text = _stdin()
    if not text.lstrip().startswith("{"):
        return {needed: _checked(needed, text)}
    try:
        found = json.loads(text)
    except ValueError:
        raise InvalidInputError(
            "standard input begins like JSON and is none", hint="one object, name to secret"
        ) from None
    return secrets_of(found)


def secrets_of(found: Mapping[str, object]) -> dict[str, Secret]:
    """The secrets of a JSON object; InvalidInputError for other names and for what is no text."""
    check_known(found, NAMES, "name of a secret")
    wrong = sorted(name for name, value in found.items() if not isinstance(value, str))
    if wrong:
        raise InvalidInputError(f"the {wrong[0]} is no text", hint="write it in quotes")
    return {name: _checked(name, str(value)) for name, value in found.items()}


def check_known(found: Iterable[str], known: Sequence[str], noun: str) -> None:
    """InvalidInputError if a name in *found* is not *known*.

    It is repeated only where it is one of those, misspelt: where a head line is missing it is a secret.
    """
    for number, name in enumerate(found, 1):
        if name not in known:
            is_meant = _PLAIN.fullmatch(name) and get_close_matches(name, known, 1)
            told = f"{name!r} is" if is_meant else f"what stands in place {number} is"
            hint = f"one of: {', '.join(known)}"
            raise InvalidInputError(
                f"{told} no {noun}", hint=hint if is_meant else f"are names missing? {hint}"
            )


def _checked(name: str, text: str) -> Secret:
    """A key in PEM keeps its lines; of all others the line break at the end goes."""
    text = text if name == "private_key" else text.strip()
    if not text.strip():
        raise InvalidInputError(f"the {name} is empty", hint="look at where it should come from")
    return Secret(text)
