"""Checks of external names, once where they enter. Spec: R36.

Provider, account, queue and kind appear in file names, metrics and commands, so they are plain. Tenant ids are
the user's own and may be almost anything: they are hashed in keys and length-prefixed in associated data.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache

from fairlead.errors import InvalidInputError

MAX_TENANT_BYTES = 200
SYSTEM_TENANT = "fairlead"
"""The tenant of schedules and jobs that concern all tenants."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SHOWN = 60


def check_name(noun: str, value: object, *, tenant: str | None = None) -> str:
    """Return *value* if it is a name for a *noun* (provider, account, queue, kind).

    >>> check_name("provider", "mercadolibre")
    'mercadolibre'

    Raises:
        InvalidInputError: It is not.
    """
    if isinstance(value, str) and _is_plain(value):
        return value
    raise InvalidInputError(
        f"{shown(value)} is no name for a {noun}",
        tenant=tenant,
        hint="use 1 to 64 of a-z, 0-9, '_', '.', '-', beginning with a letter or digit",
    )


def check_tenant(value: object) -> str:
    """Return *value* if it can be a tenant id: 1 to 200 bytes of UTF-8 without control characters."""
    return check_label("tenant id", value, MAX_TENANT_BYTES)


def trimmed_tenant(value: object) -> str:
    """Return *value* if it can be the tenant id of something new: a tenant id without white space around it.

    Rows that exist may have white space there; every command still reaches them.

    >>> trimmed_tenant("acme corp")
    'acme corp'

    Raises:
        InvalidInputError: It is no tenant id, or has white space around it.
    """
    tenant = check_tenant(value)
    if tenant != tenant.strip():
        raise InvalidInputError(
            f"the tenant id {shown(tenant)} begins or ends with white space",
            tenant=tenant,
            hint="remove it: with and without it they are two tenants",
        )
    return tenant


def check_customer(value: object) -> str:
    """Return *value* if it can be the tenant id of a customer, and so is not fairlead's own."""
    tenant = trimmed_tenant(value)
    if tenant == SYSTEM_TENANT:
        raise InvalidInputError(
            f"the tenant id {tenant!r} is fairlead's own",
            tenant=tenant,
            hint="give the customer another: what holds this one's work would hold schedules of all",
        )
    return tenant


def check_label(noun: str, value: object, max_bytes: int, *, tenant: str | None = None) -> str:
    """Return *value* if it is 1 to *max_bytes* bytes of UTF-8 without control characters.

    Raises:
        InvalidInputError: It is not.
    """
    problem = _label_problem(value, max_bytes) if isinstance(value, str) else "it must be a text"
    if problem is None:
        assert isinstance(value, str)
        return value
    raise InvalidInputError(
        f"{shown(value)} is no {noun}: {problem}",
        tenant=tenant,
        hint=f"use 1 to {max_bytes} bytes of UTF-8 without control characters",
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others.

    >>> listed(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shown(value: object) -> str:
    """Return *value* for an error message: ASCII only, short, and only the type of other objects."""
    if not isinstance(value, str):
        return f"a {type(value).__name__}"
    text = ascii(value[:_SHOWN])
    return text if len(value) <= _SHOWN else f"{text}… ({len(value)} characters)"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of *names* that *name* is probably a misspelling of.

    >>> nearest("shopfy", ["shopify", "stripe"]), nearest("bike", ["shopify", "stripe"])
    ('shopify', None)
    """
    return next(iter(get_close_matches(name, [*names], n=1)), None)


# The same few names come again and again with the jobs of a batch; both caches are bounded.


@lru_cache(maxsize=1024)
def _is_plain(value: str) -> bool:
    return _PLAIN.fullmatch(value) is not None  # fullmatch: "$" would let a newline at the end pass


@lru_cache(maxsize=4096)
def _label_problem(value: str, max_bytes: int) -> str | None:
    """Return why `check_label` refuses *value*; None if it does not."""
    if not value:
        return "it is empty"
    if len(value) > max_bytes or len(value.encode("utf-8", "replace")) > max_bytes:
        return f"it is longer than {max_bytes} bytes"
    # Cc: control characters; Cs: halves of surrogate pairs, which are no UTF-8
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        return "it has a control character or is no valid UTF-8"
    return None


def connection_group(provider: str, account: str = "default") -> str:
    """Return the group of all work for one account, which its 429 or revoked grant pauses.

    >>> connection_group("shopify")
    'shopify/default'
    """
    return f"{provider}/{account}"
