"""The kinds of fairlead's own jobs that several domains know by name."""

from __future__ import annotations

REFRESH = "token.refresh"
SCAN = "token.scan"
NEEDS_REAUTH = "event.needs_reauth"
TOKEN_EXPIRING = "event.token_expiring"
WEBHOOK = "event.webhook"
