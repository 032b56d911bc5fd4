"""Resolves how an API paginates: from the call, the connection, or the provider's profile. Spec: C8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.pagination import PaginationConfig
from fairlead.policy.providers.profile import Profile

_PAGES: TypeAdapter[PaginationConfig] = TypeAdapter(PaginationConfig)


def resolve_pagination(
    pages: PaginationConfig | Mapping[str, Any] | None,
    by_api: Mapping[str, PaginationConfig],
    profile: Profile,
    api: str,
    items: str | None,
    key: ConnectionKey,
) -> PaginationConfig:
    """Return the pagination of *api*.

    Args:
        pages: The pagination that the call names, which takes precedence.
        by_api: The pagination in the connection's settings, by API.
        profile: The provider's profile, which is read last.
        items: Where the items are in a response; overrides the one in the pagination.

    Raises:
        InvalidInputError: There is none, or it is not valid.
    """
    table: PaginationConfig | Mapping[str, Any] | None = pages or by_api.get(api)
    if table is None and api in profile.apis:
        table = profile.apis[api].pages
    if table is None:
        hint = "give `pages`, in the call or in the settings of the connection"
        raise _invalid("it is not known how this API paginates", hint, key)
    try:
        if not isinstance(table, Mapping):
            table = {"kind": table.kind, **table.model_dump(exclude_unset=True)}
        return _PAGES.validate_python({**table, **({} if items is None else {"items": items})})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"]) or "pages"
        problem = first["msg"].removeprefix("Value error, ")
        raise _invalid(f"pages are not acceptable: {path}: {problem}", "correct it", key) from None


def _invalid(message: str, hint: str, key: ConnectionKey) -> InvalidInputError:
    return InvalidInputError(message, tenant=key.tenant, provider=key.provider, hint=hint)
