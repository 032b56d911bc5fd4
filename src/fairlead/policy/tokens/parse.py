"""Parses a token endpoint's response: strict where it protects, lenient where a token would be lost.

The refresh token is spent when the response is read, so nothing here raises. A response that cannot be read
is a TokenResponse with a `problem`, and the raw body stays sealed in the journal. For `expires_in` and
`expires_at`, see lifetime.py. Spec: V4, V7, R12.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import parse_qsl

from fairlead._core.secret import Secret
from fairlead.policy.providers.profile_parts import ErrorCodePath
from fairlead.policy.text.charset import charset_of, strict_text_of
from fairlead.policy.tokens.lifetime import read_number, read_time
from fairlead.policy.tokens.token_json import NO_FIELDS, UnreadableBodyError, json_object, plain_json

LARGEST_BODY = 256 * 1024
LARGEST_TOKEN = 64 * 1024
_LONGEST_SCOPE = 8 * 1024
_LONGEST_CODE = 200
_LONGEST_TEXT = 2_000
_LONGEST_HEADER = 100
_MOST_FORM_FIELDS = 64
# RFC 6750 allows fewer characters; Salesforce's tokens hold "!". A space or control would split the header.
_ACCESS_TOKEN = re.compile(r"[\x21-\x7e]+")
_REFRESH_TOKEN = re.compile(r"[\x20-\x7e]+")  # RFC 6749 A.17: VSCHAR; it travels form-encoded
TOKEN_TYPE = re.compile(r"[A-Za-z0-9._~+/:-]{1,64}")
_SCOPE = re.compile(r"[\x20-\x7e]*")
_STANDARD = frozenset({"access_token", "refresh_token", "token_type", "scope", "expires_in"})
_CODE_PLACES: tuple[str, ...] = get_args(ErrorCodePath)
_TEXT_PLACES = ("error_description", "message", "error.message", "error_message", "detail")
_ERROR_FIELDS = frozenset(path.partition(".")[0] for path in (*_CODE_PLACES, *_TEXT_PLACES))


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The fields of a successful response as sent."""

    access_token: Secret
    refresh_token: Secret | None
    token_type: str | None
    scope: str | None
    life: float | None  # expires_in, in the profile's unit
    ends_at: float | None  # expires_at, Unix time by the issuer's clock
    other: Secret  # JSON object of all other fields


@dataclass(frozen=True, slots=True)
class ErrorFields:
    """The error codes of a response with the fields they stood in, and its descriptions.

    They are never shown as they are, because an issuer may echo secrets in them.
    """

    codes: tuple[tuple[str, str], ...] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """A parsed response. *problem* says why there is neither grant nor error."""

    status: int
    grant: TokenGrant | None
    error: ErrorFields | None
    problem: str | None
    retry_after: str | None  # as sent; policy.failures.hint parses it
    date: str | None  # as sent: the issuer's clock, for a Retry-After that is a date


def parse_token_response(status: int, headers: Mapping[str, Sequence[str]], body: bytes) -> TokenResponse:
    """Parse a response of a token endpoint. Never raises.

    Args:
        headers: One or several values for each name; names in any case.
    """
    grant, error, problem = None, None, None
    try:
        fields = _fields_of(body, charset_of(_single(headers, "content-type")))
        error = _error_of(fields)
        grant = _grant_of(fields)
        if grant is None and error is None:
            problem = "neither access_token nor error"
    except UnreadableBodyError as unreadable:
        problem = str(unreadable)
    return TokenResponse(
        status=status,
        grant=grant,
        error=error,
        problem=problem,
        retry_after=_single(headers, "retry-after"),
        date=_single(headers, "date"),
    )


def _single(headers: Mapping[str, Sequence[str]], name: str) -> str | None:
    """Return the only value of a header. Two values contradict each other, so they count as none."""
    values: list[str] = []
    for key, value in headers.items():
        if key.lower() == name:
            values += [value] if isinstance(value, str) else list(value)
    return values[0] if len(values) == 1 and len(values[0]) <= _LONGEST_HEADER else None


# ---- from bytes to fields


def _fields_of(body: bytes, charset: str | None) -> dict[str, Any]:
    """Return the fields of a JSON or form body; raise UnreadableBodyError for any other."""
    if len(body) > LARGEST_BODY:
        raise UnreadableBodyError(f"body larger than {LARGEST_BODY} bytes")
    try:
        text = strict_text_of(body, charset).strip(" \t\r\n")
    except UnicodeDecodeError:
        raise UnreadableBodyError("body is not in the charset that it states, or not UTF-8") from None
    if not text:
        raise UnreadableBodyError("empty body")
    if text.startswith("<"):
        raise UnreadableBodyError("HTML or XML body")
    return json_object(text) if text[0] in '{["' else _form_fields(text)


def _form_fields(text: str) -> dict[str, Any]:
    if not text.isascii() or not text.isprintable() or " " in text or "=" not in text:
        raise UnreadableBodyError("body is neither JSON nor a form")
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MOST_FORM_FIELDS,
        )
    except ValueError:
        raise UnreadableBodyError("form body is malformed") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise UnreadableBodyError("duplicate key in form")
    return fields


# ---- from fields to a grant or an error


def _grant_of(fields: Mapping[str, Any]) -> TokenGrant | None:
    """Return the token in *fields*; None if they have none. Raise UnreadableBodyError if it is malformed."""
    if fields.get("access_token") in (None, ""):
        return None
    refresh = fields.get("refresh_token")
    return TokenGrant(
        access_token=_token(fields["access_token"], "access_token", _ACCESS_TOKEN),
        refresh_token=_token(refresh, "refresh_token", _REFRESH_TOKEN) if refresh not in (None, "") else None,
        token_type=_token_type(fields.get("token_type")),
        scope=_scope(fields.get("scope")),
        life=read_number(fields.get("expires_in")),
        ends_at=read_time(fields.get("expires_at")),
        other=Secret(_others(fields), remember=False),
    )


def _token(value: object, name: str, form: re.Pattern[str]) -> Secret:
    """Return *value* as a Secret if it is text in the *form* of a token; raise UnreadableBodyError if not."""
    if not isinstance(value, str):
        raise UnreadableBodyError(f"{name} is not text")
    if len(value) > LARGEST_TOKEN:
        raise UnreadableBodyError(f"{name} longer than {LARGEST_TOKEN} characters")
    if not form.fullmatch(value):
        raise UnreadableBodyError(f"{name} holds characters that no token may hold")
    return Secret(value)


def _token_type(value: object) -> str | None:
    """Return a valid token type; None for an absent or invalid one, which merge() replaces by Bearer."""
    if not isinstance(value, str) or not TOKEN_TYPE.fullmatch(value):
        return None
    return "Bearer" if value.lower() == "bearer" else value


def _scope(value: object) -> str | None:
    """Return the scope as one text; None for an absent or invalid one, for which merge() keeps the stored one."""
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    if not isinstance(value, str) or not value or len(value) > _LONGEST_SCOPE or not _SCOPE.fullmatch(value):
        return None
    return value


def _others(fields: Mapping[str, Any]) -> str:
    """Return all other fields as strict JSON. NaN and infinity, which only Python writes, become null."""
    if fields.keys() <= _STANDARD:
        return NO_FIELDS
    return plain_json(_finite({key: fields[key] for key in fields if key not in _STANDARD}))


def _finite(value: Any) -> Any:
    """Return *value* with null in place of NaN and infinity, at any depth."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _error_of(fields: Mapping[str, Any]) -> ErrorFields | None:
    """Return the error codes and texts in *fields*; None if they have none."""
    if fields.keys().isdisjoint(_ERROR_FIELDS):
        return None
    codes = ((path, _text_at(fields, path, _LONGEST_CODE)) for path in _CODE_PLACES)
    texts = (_text_at(fields, path, _LONGEST_TEXT) for path in _TEXT_PLACES)
    named = tuple((path, code) for path, code in codes if code)
    descriptions = tuple(text for text in texts if text)
    return ErrorFields(named, descriptions) if named or descriptions else None


def _text_at(fields: Mapping[str, Any], path: str, longest: int) -> str:
    value = at_path(fields, path)
    return value[:longest] if isinstance(value, str) else ""


def at_path(fields: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path of objects; None if there is none."""
    value: Any = fields
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
