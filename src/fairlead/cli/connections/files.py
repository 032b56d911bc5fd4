"""Connections in files: our own JSON and CSV, and responses of Nango's API.

A file becomes rows. A row becomes a connection or an error of its own, so that one bad row stops no other.
Secrets are wrapped as soon as they are read, and no error contains a value.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fairlead.cli.kit.secret_input import NAMES as SECRET_NAMES
from fairlead.cli.kit.secret_input import check_known, secrets_of
from fairlead.engine.ports import CredentialState
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import InvalidInputError

FORMATS = ("auto", "json", "csv", "nango")
NANGO_TENANT = ("end_user.organization.id", "end_user.id", "connection_id")
"""The paths that may hold the tenant of a Nango connection, in order of precedence."""

Row = Mapping[str, Any]
_JSON_LINE = re.compile(r'^\{"[^"]', re.MULTILINE)  # in a cell of CSV a quote is doubled
_Word = Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Text = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00-\x1f\x7f]*$")]


def _no_flag(value: object) -> object:
    """Return true and false as text, which is refused: pydantic would read 1.0 and 0.0."""
    return str(value) if isinstance(value, bool) else value


_Seconds = Annotated[float, BeforeValidator(_no_flag), Field(strict=False, allow_inf_nan=False)]


class OwnRow(BaseModel):
    """A connection in fairlead's own format, without its secrets. Null counts as absent."""

    model_config = ConfigDict(strict=True, frozen=True)

    tenant: Annotated[_Word, Field(min_length=1)]
    provider: Annotated[_Word, Field(min_length=1)]
    account: _Word = "default"
    variant: _Word | None = None
    account_id: _Word | None = None
    client_id: _Word = ""
    key_id: _Word | None = None
    scope: _Text | None = None
    token_type: _Word = "Bearer"
    state: CredentialState = "active"
    state_reason: _Text | None = None
    endpoint: Annotated[dict[_Word, _Word], Field(max_length=32)] = {}
    settings: dict[str, Any] = {}
    expires_at: _Word | None = None
    expires_in_s: _Seconds | None = None


FIELDS = (*OwnRow.model_fields, *SECRET_NAMES)


class UnfitRow(dict[str, Any]):
    """A row that cannot be read in a file that can. Only this row is refused."""

    problem: InvalidInputError


@dataclass(frozen=True, slots=True)
class ConnectionEntry:
    """One connection of a file. *config* holds the endpoint parameters of a foreign file, with their names."""

    tenant: str
    provider: str
    account: str
    grant: Grant
    config: Mapping[str, str] = field(default_factory=dict)


def read_rows(text: str, form: str) -> tuple[str, list[Row]]:
    """Return the format of a file, and its rows.

    Raises:
        InvalidInputError: The file cannot be read at all.
    """
    if form not in FORMATS:
        raise InvalidInputError(f"{form!r} is no format", hint=f"one of: {', '.join(FORMATS)}")
    looks_like_json = text.lstrip()[:1] in {"[", "{"} or _JSON_LINE.search(text) is not None
    if form == "csv" or (form == "auto" and not looks_like_json):
        return "csv", list(_csv_rows(text))
    rows = _json_rows(text)
    is_nango = form == "nango" or (form == "auto" and any("provider_config_key" in row for row in rows))
    return "nango" if is_nango else "json", rows


def _json_rows(text: str) -> list[Row]:
    """Read an array, an object with ``connections``, one object, or one object per line."""
    try:
        document = _READER.decode(text)
    except (ValueError, RecursionError) as error:
        head = text.lstrip().partition("\n")[0].rstrip()
        if head[:1] == "[" or head[-1:] in {"[", "{", ","}:  # a single document on several lines
            problem = f"the file is not JSON at line {getattr(error, 'lineno', 1)}"
            raise InvalidInputError(problem, hint="correct that line") from None
        document = [
            _json_line(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
    if isinstance(document, Mapping):
        document = document["connections"] if isinstance(document.get("connections"), list) else [document]
    if not isinstance(document, list):
        raise InvalidInputError(
            "the file has no list of connections", hint="give an array of objects, or one per line"
        )
    return [row if isinstance(row, Mapping) else _unfit({}, *_NO_OBJECT) for row in document]


def _unfit(members: Mapping[str, Any], problem: str, hint: str) -> UnfitRow:
    """Return a row that carries its error, so that the other rows are imported."""
    row = UnfitRow(members)
    row.problem = InvalidInputError(problem, hint=hint)
    return row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object. One with a repeated name is unfit, and so is its parent."""
    members = dict(pairs)
    inner = next((value for value in members.values() if isinstance(value, UnfitRow)), None)
    if len(members) < len(pairs):
        return _unfit(members, "it has a name twice", "remove one of them")
    return members if inner is None else _unfit(members, inner.problem.message, inner.problem.hint)


_READER = json.JSONDecoder(object_pairs_hook=_object)
_NO_OBJECT = ("it is not a JSON object", "compare it with an export")


def _json_line(number: int, line: str) -> Any:
    try:
        return _READER.decode(line.strip())
    except (ValueError, RecursionError) as error:
        at = f"line {number}, column {getattr(error, 'colno', 0)}"
        return _unfit({}, f"the file is not JSON at {at}", "correct that line")


def _csv_rows(text: str) -> Iterator[Row]:
    """Yield the rows of a CSV file. Column ``endpoint.shop`` sets a part of a table; empty cells are absent."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        if len(set(names)) < len(names):
            raise InvalidInputError("two columns have the same name", hint="remove one of them")
        for cells in reader:
            if None in cells or None in cells.values():
                yield _unfit({}, "its number of cells differs from the number of columns", "quote commas")
            else:
                yield _nested({name.strip(): value for name, value in cells.items() if value.strip()})
    except csv.Error as error:
        raise InvalidInputError(
            f"the file is not CSV after line {reader.line_num}: {error}",
            hint="quote cells with commas or line breaks",
        ) from None


def _nested(cells: Mapping[str, str]) -> Row:
    """Return *cells* as a row in which the column ``endpoint.shop`` is ``shop`` of the table ``endpoint``."""
    row: dict[str, Any] = {}
    for name, value in cells.items():
        table, dot, part = name.partition(".")
        here = row.setdefault(table, {} if dot else value)
        if isinstance(here, dict) != bool(dot):
            return _unfit(row, "a column and a part of it both have a value", "fill in only one of them")
        if dot:
            here[part] = value
    return row


# ---- our own format -----------------------------------------------------------------------------


_NO_TEXT = ("not text", "write it in quotes")
_UNFIT = {
    "missing": ("missing", "each connection names its tenant and provider"),
    "string_too_short": ("missing", "each connection names its tenant and provider"),
    "string_type": _NO_TEXT,
    "string_too_long": ("too long", "check the value"),
    "string_unicode": ("not valid text", "it holds half of a surrogate pair"),
    "dict_type": ("not a table of names and values", 'write it like "endpoint": {"shop": "my-shop"}'),
    "literal_error": (f"not one of {', '.join(get_args(CredentialState))}", "leave it out for a new grant"),
    "float_type": ("not a number", "give seconds"),
    "float_parsing": ("not a number", "give seconds"),
    "finite_number": ("not a number", "give seconds"),
}


def own_entry(row: Row, now: datetime) -> ConnectionEntry:
    """Return the connection of a row in fairlead's own format.

    Raises:
        InvalidInputError: The row is not valid. The message names the field but no value.
    """
    check_known(map(str, row), FIELDS, "field of a connection")
    try:
        read = OwnRow.model_validate({name: value for name, value in row.items() if value is not None})
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        text, hint = _UNFIT.get(problem["type"], ("invalid", "compare it with an export"))
        of = "a value in the" if len(problem["loc"]) > 1 else "the"
        raise InvalidInputError(f"{of} {problem['loc'][0]} is {text}", hint=hint) from None
    fields = read.model_dump(exclude={"tenant", "provider", "account", "expires_at"})
    fields["settings"] = fields["settings"] or None
    if read.expires_in_s is None:
        fields["expires_in_s"] = _left_s(read.expires_at, now)
    secrets: dict[str, Any] = secrets_of(
        {name: row[name] for name in SECRET_NAMES if row.get(name) not in (None, "")}
    )
    return ConnectionEntry(read.tenant, read.provider, read.account, Grant(**fields, **secrets))


def _table(row: Row, name: str) -> dict[str, Any]:
    table = row.get(name) or {}
    if not isinstance(table, Mapping):
        raise InvalidInputError(
            f"{name} is no table of names and values", hint=f'"{name}": {{"shop": "my-shop"}}'
        )
    return {str(key): value for key, value in table.items()}


def _left_s(written: object, now: datetime) -> float | None:
    """Return the seconds from *now* until the access token ends."""
    if written is None:
        return None
    try:
        end = datetime.fromisoformat(str(written).replace("Z", "+00:00"))
    except ValueError:
        raise InvalidInputError("expires_at is no time", hint="write 2026-11-20T12:00:00Z") from None
    if end.tzinfo is None:
        raise InvalidInputError("expires_at names no time zone", hint="write 2026-11-20T12:00:00Z")
    return max(0.0, (end - now).total_seconds())


# ---- Nango ---------------------------------------------------------------------------------------


def nango_entry(
    row: Row,
    now: datetime,
    our_names: Mapping[str, str],
    is_ours: Callable[[str], bool],
    tenant_path: str | None,
) -> ConnectionEntry:
    """Return the connection in a response of Nango's ``GET /connections/{id}``.

    Args:
        our_names: Maps provider names of Nango to ours.
        is_ours: Whether a provider name is one of ours.
        tenant_path: A dotted path to the tenant. Default: organisation, end user or connection id.

    Raises:
        InvalidInputError: Credentials, tenant or provider are missing or not supported.
    """
    credentials = row.get("credentials")
    if not isinstance(credentials, Mapping):
        raise InvalidInputError(
            "the connection has no credentials",
            hint="export each by GET /connections/{id}, not by the list",
        )
    grant = Grant(
        scope=_at(credentials, "raw.scope"),
        expires_in_s=_left_s(credentials.get("expires_at"), now),
        **_nango_secrets(credentials),
    )
    return ConnectionEntry(
        tenant=_nango_tenant(row, tenant_path),
        provider=_nango_provider(row, our_names, is_ours),
        account="default",
        grant=grant,
        config={name: str(value) for name, value in _table(row, "connection_config").items()},
    )


def _nango_tenant(row: Row, tenant_path: str | None) -> str:
    paths = (tenant_path,) if tenant_path else NANGO_TENANT
    for path in paths:
        tenant = _at(row, path)
        if tenant:
            return tenant
    raise InvalidInputError(
        "the connection names no tenant", hint=f"looked at {', '.join(paths)}: see --tenant-from"
    )


def _nango_provider(row: Row, our_names: Mapping[str, str], is_ours: Callable[[str], bool]) -> str:
    names = [str(row[name]) for name in ("provider_config_key", "provider") if row.get(name)]
    for name in names:
        if name in our_names:
            return our_names[name]
    for name in names:
        for spelling in (name, name.replace("-", ""), name.replace("-", "_")):
            if is_ours(spelling):
                return spelling
    raise InvalidInputError(
        f"there is no profile for {' or '.join(map(repr, names)) or 'a connection without provider'}",
        hint="--map-provider THEIRS=OURS",
    )


def _nango_secrets(credentials: Row) -> dict[str, Any]:
    kind = str(credentials.get("type"))
    if kind == "OAUTH2":
        secrets = {name: credentials.get(name) for name in ("access_token", "refresh_token")}
    elif kind == "API_KEY":
        secrets = {"api_key": credentials.get("apiKey") or credentials.get("api_key")}
    else:
        raise InvalidInputError(
            f"credentials of type {kind!r} are not supported", hint="export OAUTH2 or API_KEY credentials"
        )
    return secrets_of({name: value for name, value in secrets.items() if value})


def _at(row: Row, path: str) -> str | None:
    """Return the text or number at a dotted *path* as text, else None."""
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    is_text = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return str(value) if is_text else None
