"""What a status means by itself, if no rule matches. Spec: T, DEFAULTS §4."""

from __future__ import annotations

from fairlead.policy.failures.category import Category

_AUTH = frozenset({401})
_PERMISSION = frozenset({402, 403, 407, 451})
# Of these the same request gets the same answer. 3xx: redirects are not followed.
_REQUEST = frozenset({400, 404, 405, 406, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 426, 428, 431})


def category_of_status(status: int) -> Category | None:
    """Return the category that *status* alone means; None: it means no known failure.

    >>> category_of_status(404).value, category_of_status(502).value, category_of_status(418)
    ('permanent_request', 'transient_server', None)
    """
    if status in _AUTH:
        return Category.PERMANENT_AUTH
    if status in _PERMISSION:
        return Category.PERMANENT_PERMISSION
    if status in _REQUEST or (300 <= status < 400 and status != 304):
        return Category.PERMANENT_REQUEST
    if status == 429:
        return Category.TRANSIENT_RATE_LIMIT
    if status == 408:
        return Category.TRANSIENT_NETWORK
    return Category.TRANSIENT_SERVER if 500 <= status < 600 else None


def is_success(status: int) -> bool:
    """Return whether the call succeeded. A 304 confirms what the caller has."""
    return 200 <= status < 300 or status == 304
