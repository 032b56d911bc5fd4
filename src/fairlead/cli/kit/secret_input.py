"""Input of secrets: never as words of the command line, which the shell's history and `ps` show.

``--secret NAME=SOURCE`` names the source: ``env:VARIABLE``, ``file:PATH``, ``-`` for standard input, or
``prompt``. Without it, the command asks at a terminal for the secret that the provider needs. A script passes it
on standard input, or one JSON object of several secrets.
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
        help="The source of a secret: env:VARIABLE, file:PATH, - (standard input) or prompt. "
        f"Names: {', '.join(NAMES)}.",
    ),
]


def read_secrets(options: Sequence[str] | None, required: str | None) -> dict[str, Secret]:
    """Return the secrets by name. Without --secret *options*, read the *required* one, if any."""
    sources = parse_pairs(options, "--secret")
    if set(sources) - set(NAMES):  # the message omits the name: it may be part of a secret
        raise InvalidInputError("--secret gives no name of a secret", hint=f"one of: {', '.join(NAMES)}")
    if list(sources.values()).count("-") > 1:
        raise InvalidInputError(
            "standard input holds one secret", hint="pass a JSON object, without --secret"
        )
    if sources:
        return {name: _read_source(name, source) for name, source in sources.items()}
    if required is None:
        return {}
    if sys.stdin.isatty():
        return {required: _prompt(required)}
    return _from_stdin(required)


def _read_source(name: str, source: str) -> Secret:
    kind, _, location = source.partition(":")
    if source == "-":
        return _checked(name, _read_stdin())
    if source == "prompt":
        return _prompt(name)
    if kind == "env" and location:
        if location not in os.environ:
            raise InvalidInputError(
                f"{location} is not set in the environment", hint=f"it should hold the {name}"
            )
        return _checked(name, os.environ[location])
    if kind == "file" and location:
        return _checked(name, _read_file(Path(location)))
    raise InvalidInputError(
        f"--secret {name}=... names no source",
        hint="give env:VARIABLE, file:PATH, - or prompt, not the secret itself",
    )


def _read_file(path: Path) -> str:
    try:
        return read_checked(path, most_bytes=MAX_BYTES, is_secret=True, error=InvalidInputError).data.decode()
    except PermissionError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read ({type(error).__name__})", hint="name a text file"
        ) from None


def _prompt(name: str) -> Secret:
    return _checked(name, typer.prompt(name.replace("_", " "), hide_input=True, err=True))


def _read_stdin() -> str:
    return sys.stdin.read(MAX_BYTES)


def _from_stdin(required: str) -> dict[str, Secret]:
    text = _read_stdin()
    if not text.lstrip().startswith("{"):
        return {required: _checked(required, text)}
    try:
        values = json.loads(text)
    except ValueError:
        raise InvalidInputError(
            "standard input begins like JSON and is not valid", hint="give one object of names and secrets"
        ) from None
    return secrets_of(values)


def secrets_of(values: Mapping[str, object]) -> dict[str, Secret]:
    """Return the secrets of a JSON object.

    Raises:
        InvalidInputError: A name is unknown, or a value is not text.
    """
    check_known(values, NAMES, "name of a secret")
    wrong = sorted(name for name, value in values.items() if not isinstance(value, str))
    if wrong:
        raise InvalidInputError(f"the {wrong[0]} is no text", hint="write it in quotes")
    return {name: _checked(name, str(value)) for name, value in values.items()}


def check_known(names: Iterable[str], valid: Sequence[str], noun: str) -> None:
    """Check that all *names* are *valid*.

    Raises:
        InvalidInputError: One is not. The message shows the name only if it is a misspelt valid one: in a file
            without a header, the name may be a secret.
    """
    for number, name in enumerate(names, 1):
        if name not in valid:
            is_misspelt = _PLAIN.fullmatch(name) and get_close_matches(name, valid, 1)
            subject = repr(name) if is_misspelt else f"item {number}"
            hint = f"one of: {', '.join(valid)}"
            raise InvalidInputError(
                f"{subject} is no {noun}", hint=hint if is_misspelt else f"are names missing? {hint}"
            )


def _checked(name: str, text: str) -> Secret:
    """Return *text* as a secret without surrounding white space; a private key keeps its lines."""
    text = text if name == "private_key" else text.strip()
    if not text.strip():
        raise InvalidInputError(f"the {name} is empty", hint="check its source")
    return Secret(text)
