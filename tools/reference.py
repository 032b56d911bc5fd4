"""Writes docs/reference/{errors,reasons,settings,events,client}.md from the code.

``python -m tools.reference [--check]``. A test compares the pages with the code, so neither changes alone.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

import fairlead
import fairlead.engine.limits.observations
import fairlead.events
from fairlead.assembly.config import SECRETS_FROM_FILES, STANDARD
from fairlead.assembly.settings import Settings
from fairlead.errors import FairleadError, all_errors
from fairlead.events import Event
from fairlead.policy.reasons import BY_SUBJECT, Reason
from fairlead.policy.settings.env_names import PREFIX

FOLDER = Path(__file__).resolve().parents[1] / "docs/reference"
_NOTE = "<!-- Written by `python -m tools.reference`. Do not edit. -->"

_RULE = re.compile(r" \((?:[A-Z][0-9]+|DEFAULTS §[0-9]+)(?:, [A-Z][0-9]+)*\)")  # requirement ids

# ---- errors ------------------------------------------------------------------------------------

_ERRORS = """\
Every error that you can catch is a `FairleadError`. Let your code decide on its attributes, never on its
text: `code` is stable, `sent` says whether a request may have reached the provider, `retryable` whether
your retry may help (`retry_after_s` then says when, if that is known; one that is raised with a permanent
category, such as a `not_sent` for TLS, never is), and HTTP status is what a web service would answer its
own caller. Messages name tenant and provider, end in a hint, and hold no secret.

Catch families: `RefusedError` means that nothing was sent and a retry is free; `FailedError` means that a
request left. The rest are wrong calls (`UsageError`) and wrong set-ups (`SetupError`).
"""


def errors_page() -> str:
    """Return the page of errors, one line for each stable code.

    Spec: T15.
    """
    head = ("code", "class", "is a", "sent", "retryable", "HTTP", "category", "meaning", "hint")
    rows = [_error_row(kind) for kind in our_errors()]
    return _page("Errors", _ERRORS, _table(head, rows))


def our_errors() -> list[type[FairleadError]]:
    """Return the errors of fairlead itself, without those of tests and extensions."""
    return [kind for kind in all_errors() if kind.__module__ == "fairlead.errors"]


def _error_row(kind: type[FairleadError]) -> tuple[str, ...]:
    parent = kind.__mro__[1].__name__
    return (
        f"`{kind.code}`",
        f"`{kind.__name__}`",
        f"`{parent}`",
        _yes(kind.sent),
        _yes(kind.retryable),
        str(kind.http_status),
        f"`{kind.category}`" if kind.category else "–",
        _first_paragraph(kind),
        kind.default_hint,
    )


# ---- reasons -----------------------------------------------------------------------------------

_REASONS = """\
Look up here why work waits, is refused or has ended. You find the same code in `code` and `reason` of errors, in
events, in dead letters, in `fairlead jobs explain` and in the output of the command line. The class says what
became of the work: `wait` starts later by itself, `refusal` was not started and sent nothing, `end` is over.

Three sets of codes are open: the codes that a provider gives itself, `http_` with a status, and the class names
of exceptions of your handlers. `not_sent_` before a code of a call means that your request was not sent.
"""


def reasons_page() -> str:
    """Return the page of reasons, with a table for each subject.

    Spec: Y1.
    """
    body: list[str] = []
    for subject, reasons in BY_SUBJECT.items():
        rows = [_reason_row(reason) for reason in reasons]
        body += [
            "",
            f"## {subject}",
            "",
            *_table(("code", "class", "what happened", "what you can do"), rows),
        ]
    return _page("Reasons", _REASONS, body)


def _reason_row(reason: Reason) -> tuple[str, ...]:
    return f'<a id="{reason.code}"></a>`{reason.code}`', reason.kind.value, reason.text, reason.hint


# ---- settings ----------------------------------------------------------------------------------

_SETTINGS = f"""\
You can give a setting as a flag, else from the environment, else from the settings file (`fairlead.toml`, or
the file in `{PREFIX}CONFIG`), else it has its default. `fairlead config show --origin` shows you which it was.
Unknown settings are refused, and you get all problems at once.

In the environment `{PREFIX}WORKER__LEASE_S=10` stands for `lease_s` in `[worker]`; lists are split at commas.
The secrets marked *or file* may also be read from a file: add `_FILE` to the name of the variable.

A variable with `__` that is not a setting is refused, and so is one that nearly equals a setting, such as
`{PREFIX}DATABASE_URL`; the message names the setting. Variables that Kubernetes makes for a Service of the
name `fairlead` or `fairlead-...` are ignored. Any other variable that begins with `{PREFIX}` is ignored with
one warning; set `{PREFIX}STRICT_ENV=1` to refuse it.

A file that holds a secret is refused if other users can read it: `chmod 600` it. Secrets that Kubernetes
mounts need `defaultMode: 0400`, or `0440` with an `fsGroup`: a group of the process may read them, nobody
else. A settings file with a secret may have any mode in a folder that lets no other user in, and one without
a secret may be read by everyone. A file that other users can write is always refused.
"""


def settings_page() -> str:
    """Return the page of settings, with a table for each table of the settings file."""
    body: list[str] = []
    for path, model in _tables(Settings, ()):
        if path:
            body += ["", f"## `[{'.'.join(path)}]`", "", _first_paragraph(model), ""]
        rows = [_setting_row(path, name, field) for name, field in _leaves(model)]
        body += _table(("setting", "in the environment", "takes", "default", "meaning"), rows)
    return _page("Settings", _SETTINGS, body)


def _tables(
    model: type[BaseModel], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    yield path, model
    for name, field in model.model_fields.items():
        inner = _table_of(field)
        if inner is not None:
            by_name = ("NAME",) if _kind_of(field) == "table" else ()
            yield from _tables(inner, (*path, name, *by_name))


def _leaves(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    return ((name, field) for name, field in model.model_fields.items() if _table_of(field) is None)


def _table_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a table, or a mapping of tables; None for other fields."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _setting_row(path: tuple[str, ...], name: str, field: FieldInfo) -> tuple[str, ...]:
    meaning, default_text = _split_default(field.description or "")
    value = field.get_default(call_default_factory=True)
    has_default = value is not None and value not in ((), {}, "")
    default = f"`{_shown(value)}`" if has_default else default_text or "none"
    return (f"`{name}`", _variables((*path, name), field), _takes((*path, name), field), default, meaning)


def _variables(dotted: tuple[str, ...], field: FieldInfo) -> str:
    if _kind_of(field) == "table":
        return "–"
    standard = [variable for variable, target in STANDARD.items() if target == dotted]
    return ", ".join(f"`{variable}`" for variable in (PREFIX + "__".join(dotted).upper(), *standard))


def _split_default(description: str) -> tuple[str, str]:
    """Return the meaning, and the default if the last sentence gives it."""
    meaning, marker, default_text = description.rpartition("Default ")
    return (meaning.strip(), default_text.rstrip(".")) if marker else (description, "")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_shown(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


_KINDS: tuple[tuple[type, str], ...] = (
    (tuple, "list"),
    (dict, "table"),
    (bool, "true or false"),
    (int, "whole number"),
    (float, "number"),
    (SecretStr, "secret"),
    (Path, "path"),
    (str, "text"),
)
_NO_BOUND = 1e8  # larger bounds only keep a timestamp from overflowing


def _takes(dotted: tuple[str, ...], field: FieldInfo) -> str:
    words = [f"`{word}`" for word in get_args(field.annotation) if isinstance(word, str)]
    if words:
        return ", ".join(words)
    from_file = " or file" if dotted in SECRETS_FROM_FILES else ""
    return " ".join((_kind_of(field), *_bounds(field.metadata))) + from_file


def _kind_of(field: FieldInfo) -> str:
    annotations = (field.annotation, *get_args(field.annotation))
    origins = [getattr(kind, "__origin__", kind) for kind in annotations]
    return next((name for kind, name in _KINDS if kind in origins), "text")


def _bounds(metadata: Iterable[Any]) -> Iterator[str]:
    for word, sign in (("gt", "above"), ("ge", "from"), ("le", "to")):
        bounds = (getattr(constraint, word, None) for constraint in metadata)
        yield from (f"{sign} {bound:,}" for bound in bounds if bound is not None and bound < _NO_BOUND)


# ---- events ------------------------------------------------------------------------------------

_EVENTS = """\
Look up here what a line of your log means. fairlead reports what happens inside it as events, and you find each
as one line of the log with its fields; fields that do not apply are left out. No event holds a secret. In your own
program you get events at the logger `fairlead`, so your logging configuration decides where they go.

With `@fl.on` you subscribe to `needs_reauth` and `token_expiring`; you can also have them delivered to your
service: see [notices](notices.md).

A `job_finished` line is a warning if the run failed, and an error if the job is discarded.
"""


def events_page() -> str:
    """Return the page of events, with a section for each."""
    body: list[str] = []
    for kind in our_events():
        meanings = _meanings(kind)
        rows = [
            (f"`{field.name}`", f"`{field.type}`", meanings.get(field.name, "")) for field in fields(kind)
        ]
        body += ["", f"## `{kind.name}`", "", f"Level {kind.level}. {_description(kind)}", ""]
        body += _table(("field", "type", "meaning"), rows)
    return _page("Events", _EVENTS, body)


def _description(kind: type[Event]) -> str:
    """Return the paragraphs of *kind*'s docstring before its attributes."""
    text = inspect.getdoc(kind) or ""
    return " ".join(text.partition("Attributes:")[0].split()).replace("``", "`")


def _meanings(kind: type[Event]) -> dict[str, str]:
    """Return the meaning of each field from the docstring of *kind*."""
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()).replace("``", "`") for name, text in entries}


def our_events() -> list[type[Event]]:
    """Return all events that the engine emits, by name."""
    events = {
        kind
        for module in (fairlead.events, fairlead.engine.limits.observations)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
    }
    return sorted(events, key=lambda kind: kind.name)


# ---- the client --------------------------------------------------------------------------------

_CLIENT = """\
Look up here the types with which you make calls through a connection, and those that you get back. You import
them by `from fairlead import Client, Response`. [Calls](../how-to/client.md) shows you how to use them.
"""
CLIENT_TYPES = (
    "Client",
    "CallOptions",
    "Response",
    "StreamedResponse",
    "Paginator",
    "BatchResult",
    "BatchItemError",
)


def client_page() -> str:
    """Return the page of the client's types, with their methods and attributes."""
    body: list[str] = []
    for name in CLIENT_TYPES:
        kind = getattr(fairlead, name)
        body += ["", f"## `{name}`", "", _paragraphs(kind)]
        rows = [(f"`{shape}`", _first_paragraph(member)) for shape, member in _members(kind)]
        body += ["", *_table(("member", "meaning"), rows)] if rows else []
    return _page("Client", _CLIENT, body)


def _members(kind: type[Any]) -> Iterator[tuple[str, object]]:
    """Yield each documented public member of a class, in the form ``get(path, ...)``."""
    for name, member in vars(kind).items():
        if name.startswith("_") or not member.__doc__:
            continue
        if isinstance(member, property | cached_property):
            yield name, member
        elif inspect.isfunction(member):
            parameters = inspect.signature(member).parameters.values()
            named = [
                parameter.name
                for parameter in parameters
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            ][1:]
            others = (
                ["..."]
                if any(
                    parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
                    for parameter in parameters
                )
                else []
            )
            yield f"{name}({', '.join(named + others)})", member


def _paragraphs(kind: type[Any]) -> str:
    """Return the docstring of *kind* without its examples."""
    parts = [part for part in (inspect.getdoc(kind) or "").split("\n\n") if not part.startswith(" ")]
    return "\n\n".join(_RULE.sub("", part).replace("``", "`") for part in parts)


# ---- pages -------------------------------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "errors.md": errors_page,
    "reasons.md": reasons_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "client.md": client_page,
}


def outdated() -> list[str]:
    """Return the pages that differ from the code."""
    return [
        name
        for name, page in PAGES.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != page()
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the pages; with --check only print the outdated ones, and return 1 if there are any."""
    stale = outdated()
    if "--check" in arguments:
        for name in stale:
            sys.stderr.write(f"docs/reference/{name} is outdated hint: python -m tools.reference\n")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(PAGES[name](), "utf-8")
        sys.stdout.write(f"docs/reference/{name}\n")
    return 0


def _page(title: str, head: str, body: Iterable[str]) -> str:
    return "\n".join((f"# {title}", "", _NOTE, "", head, *body)).replace("\n\n\n", "\n\n").rstrip() + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


def _first_paragraph(thing: object) -> str:
    text = " ".join((thing.__doc__ or "").split("\n\n")[0].split())
    return _RULE.sub("", text).replace("``", "`")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
