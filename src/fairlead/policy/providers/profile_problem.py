"""The problems of a profile, as `fairlead providers validate` lists them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

_HINTS: Mapping[str, str] = {
    "missing": "add this field",
    "extra_forbidden": "remove it",
    "literal_error": "use one of these values",
    "string_pattern_mismatch": "see the field's form in docs/reference/providers.md",
    "value_error": "correct the value",
}


@dataclass(frozen=True, slots=True)
class ProfileProblem:
    """One problem of a profile.

    Attributes:
        file: The path of the file.
        path: The dotted path of the field; empty for the file as a whole.
        message: What is wrong, to be read after the path.
        hint: How to correct it.
    """

    file: str
    path: str
    message: str
    hint: str

    def __str__(self) -> str:
        subject = f"{self.file}: {self.path}" if self.path else self.file
        return f"{subject}: {self.message} hint: {self.hint}"


def problems_from(
    error: ValidationError, model: type[BaseModel], file: str, table: str = ""
) -> list[ProfileProblem]:
    """Return a problem for each finding of *error*. None repeats a value of the file.

    Args:
        error: What the validation of *model* raised.
        model: The pydantic model that was validated.
        file: The file that the problems name.
        table: The table of the file that was validated. Default the whole file.
    """
    problems = []
    for finding in error.errors(include_url=False, include_input=False, include_context=False):
        parts = [str(part) for part in finding["loc"]]
        path = ".".join(([table] if table else []) + parts)
        message = finding["msg"].removeprefix("Value error, ")
        hint = _HINTS.get(finding["type"], "see docs/reference/providers.md")
        if finding["type"] == "extra_forbidden":
            hint = _unknown_field_hint(parts, model)
            message = "is not a field of a profile"
        problems.append(ProfileProblem(file, path, message, hint))
    return problems


def _unknown_field_hint(path: list[str], model: type[BaseModel]) -> str:
    """Return a hint that names the field most similar to the unknown field at *path*, or all fields there."""
    fields = _fields_at(path[:-1], model)
    similar = difflib.get_close_matches(path[-1], fields, n=1)
    if similar:
        return f"did you mean {similar[0]}?"
    return f"fields here: {', '.join(sorted(fields))}" if fields else "remove it"


def _fields_at(path: list[str], model: type[BaseModel]) -> list[str]:
    """Return the names of the fields of the table at *path*; none if it is no table."""
    current: Any = model
    for part in path:
        field = current.model_fields.get(part) if _is_model(current) else None
        current = _model_in(field.annotation) if field is not None else current
    return list(current.model_fields) if _is_model(current) else []


def _model_in(annotation: Any) -> Any:
    """Return the model in a field's annotation: itself, in ``| None``, or as the value type of a dict."""
    if _is_model(annotation):
        return annotation
    inner = [_model_in(part) for part in getattr(annotation, "__args__", ())]
    return next((part for part in inner if _is_model(part)), None)


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def format_problems(problems: Iterable[ProfileProblem]) -> str:
    """Return *problems* as a text with one line for each."""
    return "\n".join(str(problem) for problem in problems)
