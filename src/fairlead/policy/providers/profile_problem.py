"""What is wrong with a profile, said for people: file, path, reason and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

_HINTS: Mapping[str, str] = {
    "missing": "add this field",
    "extra_forbidden": "remove it",
    "literal_error": "use one of the words named",
    "string_pattern_mismatch": "see the field's form in docs/reference/providers.md",
    "value_error": "correct the value",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong. *path* is the dotted place in the file, empty for the file as a whole."""

    file: str
    path: str
    what: str
    hint: str

    def __str__(self) -> str:
        place = f"{self.file}: {self.path}" if self.path else self.file
        return f"{place}: {self.what} hint: {self.hint}"


def problems_of(error: ValidationError, model: type[BaseModel], file: str, at: str = "") -> list[Problem]:
    """Every finding of *error*; *at* names the table it began in. Never repeats a value of the file."""
    found = []
    for finding in error.errors(include_url=False, include_input=False, include_context=False):
        place = [str(part) for part in finding["loc"]]
        path = ".".join(([at] if at else []) + place)
        what = finding["msg"].removeprefix("Value error, ")
        hint = _HINTS.get(finding["type"], "see docs/reference/providers.md")
        if finding["type"] == "extra_forbidden":
            hint = _nearest(place, model)
            what = "is not a field of a profile"
        found.append(Problem(file, path, what, hint))
    return found


def _nearest(place: list[str], model: type[BaseModel]) -> str:
    """Name the fields that exist where the unknown one stands, the most alike first."""
    known = _fields_at(place[:-1], model)
    alike = difflib.get_close_matches(place[-1], known, n=1)
    if alike:
        return f"did you mean {alike[0]}?"
    return f"known here: {', '.join(sorted(known))}" if known else "remove it"


def _fields_at(place: list[str], model: type[BaseModel]) -> list[str]:
    current: Any = model
    for part in place:
        field = current.model_fields.get(part) if _is_model(current) else None
        current = _model_in(field.annotation) if field is not None else current
    return list(current.model_fields) if _is_model(current) else []


def _model_in(annotation: Any) -> Any:
    """The table a field holds: itself, inside ``| None``, or as the values of a dict."""
    if _is_model(annotation):
        return annotation
    inner = [_model_in(part) for part in getattr(annotation, "__args__", ())]
    return next((part for part in inner if _is_model(part)), None)


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def told(problems: Iterable[Problem]) -> str:
    """All problems as one text, one to a line."""
    return "\n".join(str(problem) for problem in problems)
