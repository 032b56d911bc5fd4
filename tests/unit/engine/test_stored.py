"""The plain text of sealed records: written as one JSON object, and read as earlier versions wrote it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from fairlead._core.secret import Secret
from fairlead.engine.tokens.sealed_records import CredentialSecrets, decode_secrets, encode_secrets
from fairlead.policy.tokens.token import TokenSet

STORED = CredentialSecrets(
    TokenSet(
        access_token=Secret("access-0"),
        refresh_token=Secret("refresh-0"),
        expires_at=datetime(2026, 1, 1, tzinfo=UTC),
        other=Secret('{"id":7}', remember=False),
    ),
    client_secret=Secret("client-secret"),
    endpoint_digest="digest",
)


def test_record_is_one_json_object_and_comes_back_as_it_was() -> None:
    plain = encode_secrets(STORED)
    assert isinstance(json.loads(plain)["tokens"], dict)
    assert decode_secrets(plain) == STORED


def test_record_with_its_tokens_as_a_json_text_is_read() -> None:
    record = json.loads(encode_secrets(STORED))
    earlier = {**record, "tokens": json.dumps(record["tokens"])}
    assert decode_secrets(json.dumps(earlier).encode()) == STORED
