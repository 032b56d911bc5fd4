"""How a list is handed out: as its call says it, its connection, or the provider's profile. Spec: C8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.pagination import Pages
from fairlead.policy.providers.profile import Profile

_WAYS: TypeAdapter[Pages] = TypeAdapter(Pages)


def resolve_pagination(
    pages: Pages | Mapping[str, Any] | None,
    own: Mapping[str, Pages],
    profile: Profile,
    api: str,
    items: str | None,
    key: ConnectionKey,
) -> Pages:
    """*pages* of the call, else of the connection's *own*, else the profile's, for *api*; *items* over all.

    InvalidInputError where nobody says it, or what is said cannot be.
    """
    known = profile.apis.get(api)
    way = pages or own.get(api)
    if way is None and known is not None:
        way = known.pages
    if way is None:
        hint = "give `pages`, in the call or in the settings of the connection"
        raise _wrong("it is not known how this API hands out lists", hint, key)
    try:
        table = way if isinstance(way, Mapping) else {"kind": way.kind, **way.model_dump(exclude_unset=True)}
        return _WAYS.validate_python({**table, **({} if items is None else {"items": items})})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "pages"
        problem = first["msg"].removeprefix("Value error, ")
        raise _wrong(f"pages are not acceptable: {place}: {problem}", "correct it", key) from None


def _wrong(what: str, hint: str, key: ConnectionKey) -> InvalidInputError:
    return InvalidInputError(what, tenant=key.tenant, provider=key.provider, hint=hint)
