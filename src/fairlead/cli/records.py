"""Connections as files hold them: our own JSON and CSV, and what Nango's API gives out.

A file becomes rows; a row becomes a connection or an error of its own, so that one bad row stops no other.
Secrets are wrapped as soon as they are read, and no error repeats a value.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fairlead.cli.secrets_in import NAMES, check_known, secrets_of
from fairlead.engine.ports import CredentialState
from fairlead.errors import InputInvalid
from fairlead.secret import Secret

FORMATS = ("auto", "json", "csv", "nango")
TEXTS = (
    "tenant",
    "provider",
    "bucket",
    "variant",
    "account_id",
    "client_id",
    "key_id",
    "scope",
    "token_type",
    "state",
    "state_reason",
)
STATES: tuple[CredentialState, ...] = ("active", "unknown", "needs_reauth", "revoked")
TABLES = ("endpoint", "settings")
FIELDS = (*TEXTS, *TABLES, "expires_at", "expires_in_s", *NAMES)
NANGO_TENANT = ("end_user.organization.id", "end_user.id", "connection_id")
"""Where the tenant of a Nango connection is looked for, in this order."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One connection of a file. *config* holds what a foreign file calls the parts of its addresses."""

    tenant: str
    provider: str
    bucket: str = "default"
    variant: str | None = None
    account_id: str | None = None
    client_id: str = ""
    key_id: str | None = None
    scope: str | None = None
    token_type: str = "Bearer"
    endpoint: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    expires_in_s: float | None = None
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    state: CredentialState = "active"
    state_reason: str | None = None


def rows_of(text: str, form: str) -> tuple[str, list[Row]]:
    """The rows of a file and the form they have; InputInvalid where it cannot be read at all."""
    if form not in FORMATS:
        raise InputInvalid(f"{form!r} is no format", hint=f"one of: {', '.join(FORMATS)}")
    looks_like_json = text.lstrip()[:1] in {"[", "{"}
    if form == "csv" or (form == "auto" and not looks_like_json):
        return "csv", list(_csv_rows(text))
    rows = _json_rows(text)
    is_nango = form == "nango" or (form == "auto" and any("provider_config_key" in row for row in rows))
    return "nango" if is_nango else "json", rows


def _json_rows(text: str) -> list[Row]:
    """An array, an object with ``connections``, one object, or one object per line."""
    try:
        found = json.loads(text)
    except ValueError:
        found = [_json_line(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if isinstance(found, Mapping):
        found = found["connections"] if isinstance(found.get("connections"), list) else [found]
    if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
        raise InputInvalid(
            "the file holds no list of connections", hint="give an array of objects, or one per line"
        )
    return found


def _json_line(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        at = f"line {number}, column {getattr(error, 'colno', 0)}"
        raise InputInvalid(f"the file is not JSON at {at}", hint="correct that line") from None


def _csv_rows(text: str) -> Iterator[Row]:
    """Columns are named as the fields; ``endpoint.shop`` is a part of a table, an empty cell is absent."""
    try:
        for cells in csv.DictReader(io.StringIO(text), strict=True):
            if None in cells or None in cells.values():
                raise InputInvalid(
                    "a row has more or fewer cells than there are columns", hint="quote commas"
                )
            yield _nested({name.strip(): value for name, value in cells.items() if value.strip()})
    except csv.Error as error:
        raise InputInvalid(
            f"the file is not CSV: {error}", hint="quote cells with commas or line breaks"
        ) from None


def _nested(cells: Mapping[str, str]) -> Row:
    row: dict[str, Any] = {}
    for name, value in cells.items():
        table, dot, part = name.partition(".")
        if dot:
            row.setdefault(table, {})[part] = value
        else:
            row[name] = value
    return row


# ---- our own form --------------------------------------------------------------------------------


def own_entry(row: Row, now: datetime) -> Entry:
    """The connection of a row in our own form; InputInvalid names what is wrong."""
    check_known(map(str, row), FIELDS, "field of a connection")
    texts = {name: _text(row, name) for name in TEXTS if row.get(name) is not None}
    for name in ("tenant", "provider"):
        if not texts.get(name):
            raise InputInvalid(f"the {name} is missing", hint="each connection names its tenant and provider")
    return Entry(
        tenant=texts["tenant"],
        provider=texts["provider"],
        bucket=texts.get("bucket", "default"),
        variant=texts.get("variant"),
        account_id=texts.get("account_id"),
        client_id=texts.get("client_id", ""),
        key_id=texts.get("key_id"),
        scope=texts.get("scope"),
        token_type=texts.get("token_type", "Bearer"),
        endpoint=_table(row, "endpoint"),
        settings=_table(row, "settings"),
        expires_in_s=_life(row, now),
        secrets=secrets_of({name: row[name] for name in NAMES if row.get(name) not in (None, "")}),
        state=_state(texts.get("state", "active")),
        state_reason=texts.get("state_reason"),
    )


def _state(text: str) -> CredentialState:
    """Return *text* as a state: what was revoked where it was exported must not become active here."""
    for state in STATES:
        if text == state:
            return state
    raise InputInvalid(f"the state is none of {', '.join(STATES)}", hint="leave it out for a new grant")


def _text(row: Row, name: str) -> str:
    if not isinstance(row[name], str):
        raise InputInvalid(f"the {name} is no text", hint="write it in quotes")
    return str(row[name])


def _table(row: Row, name: str) -> dict[str, Any]:
    found = row.get(name) or {}
    if not isinstance(found, Mapping):
        raise InputInvalid(f"{name} is no table of names and values", hint=f'"{name}": {{"shop": "my-shop"}}')
    return {str(key): value for key, value in found.items()}


def _life(row: Row, now: datetime) -> float | None:
    """Seconds until the access token ends: as given, or counted from its end."""
    if row.get("expires_in_s") is not None:
        try:
            return float(row["expires_in_s"])
        except (TypeError, ValueError):
            raise InputInvalid("expires_in_s is no number", hint="give seconds") from None
    if row.get("expires_at") is None:
        return None
    try:
        end = datetime.fromisoformat(str(row["expires_at"]).replace("Z", "+00:00"))
    except ValueError:
        raise InputInvalid("expires_at is no time", hint="write 2026-11-20T12:00:00Z") from None
    if end.tzinfo is None:
        raise InputInvalid("expires_at names no time zone", hint="write 2026-11-20T12:00:00Z")
    return max(0.0, (end - now).total_seconds())


# ---- Nango ---------------------------------------------------------------------------------------


def nango_entry(
    row: Row, now: datetime, providers: Mapping[str, str], known: Callable[[str], bool], tenant_at: str | None
) -> Entry:
    """The connection of an object as Nango's ``GET /connections/{id}`` answers it; else InputInvalid.

    *providers* maps its names to ours; *known* tells whether a name is one of ours. *tenant_at* is a dotted
    path to the tenant; by default organisation, end user or connection id.
    """
    credentials = row.get("credentials")
    if not isinstance(credentials, Mapping):
        raise InputInvalid(
            "the connection comes without credentials",
            hint="export each by GET /connections/{id}, not by the list",
        )
    return Entry(
        tenant=_nango_tenant(row, tenant_at),
        provider=_nango_provider(row, providers, known),
        scope=_at(credentials, "raw.scope"),
        expires_in_s=_life({"expires_at": credentials.get("expires_at")}, now),
        secrets=_nango_secrets(credentials),
        config={str(name): str(value) for name, value in (row.get("connection_config") or {}).items()},
    )


def _nango_tenant(row: Row, tenant_at: str | None) -> str:
    paths = (tenant_at,) if tenant_at else NANGO_TENANT
    for path in paths:
        found = _at(row, path)
        if found:
            return found
    raise InputInvalid(
        "the connection names no tenant", hint=f"looked at {', '.join(paths)}: see --tenant-from"
    )


def _nango_provider(row: Row, providers: Mapping[str, str], known: Callable[[str], bool]) -> str:
    named = [str(row[name]) for name in ("provider_config_key", "provider") if row.get(name)]
    for name in named:
        if name in providers:
            return providers[name]
    for name in named:
        for spelling in (name, name.replace("-", ""), name.replace("-", "_")):
            if known(spelling):
                return spelling
    raise InputInvalid(
        f"there is no profile for {' or '.join(map(repr, named)) or 'a connection without provider'}",
        hint="--map-provider THEIRS=OURS",
    )


def _nango_secrets(credentials: Row) -> dict[str, Secret]:
    kind = str(credentials.get("type"))
    if kind == "OAUTH2":
        found = {name: credentials.get(name) for name in ("access_token", "refresh_token")}
    elif kind == "API_KEY":
        found = {"api_key": credentials.get("apiKey") or credentials.get("api_key")}
    else:
        raise InputInvalid(f"credentials of type {kind!r} are not understood", hint="OAUTH2 and API_KEY are")
    return secrets_of({name: value for name, value in found.items() if value})


def _at(row: Row, path: str) -> str | None:
    found: Any = row
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return (
        str(found) if isinstance(found, str | int) and not isinstance(found, bool) and found != "" else None
    )
