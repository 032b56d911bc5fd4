"""django-oauth-toolkit's own validator, which also records what became of each refresh token presented.

rotated   it was live: a new pair takes its place
repeated  it was spent, but within the grace: the pair that replaced it is handed out again
reused    it was spent: refused, and reuse protection revoked the whole family
refused   it was live, but expired or somebody else's
unknown   there is no such token
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from django.db.models import F
from oauth2_provider.models import get_refresh_token_model
from oauth2_provider.oauth2_validators import OAuth2Validator

from tests.integration.dot_server.record import Record

_RECORD = Record(os.environ["DOT_RECORD"])


class RecordingValidator(OAuth2Validator):
    """Decides nothing; looks at the row afterwards, as the original looked at it."""

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        accepted = super().validate_refresh_token(refresh_token, client, request, *args, **kwargs)
        checksum = hashlib.sha256(refresh_token.encode()).hexdigest()
        row = request.refresh_token_instance if accepted else _row(checksum)
        _RECORD.write(
            _verdict(accepted, row),
            token=checksum[:12],
            user=row.user.username if row is not None else None,
        )
        return bool(accepted)


def _row(checksum: str) -> Any:
    newest_first = F("revoked").desc(nulls_first=True)
    rows = get_refresh_token_model().objects.filter(token_checksum=checksum)
    return rows.select_related("user").order_by(newest_first).first()


def _verdict(accepted: bool, row: Any) -> str:
    if accepted:
        return "rotated" if row.revoked is None else "repeated"
    if row is None:
        return "unknown"
    return "refused" if row.revoked is None else "reused"
