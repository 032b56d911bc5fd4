"""The plain text of sealed records: the secrets of a connection, and raw responses for the journal."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead._core.secret import Secret
from fairlead.errors import CredentialUnreadableError
from fairlead.policy.tokens.token import TokenSet, token_set_from_record, token_set_to_record
from fairlead.policy.tokens.token_json import plain_json


@dataclass(frozen=True, slots=True)
class CredentialSecrets:
    """All secrets of a connection: its tokens, and those of its own app if it does not use the shared one.

    Attributes:
        endpoint_digest: Of the hosts that they may be sent to; None in records of earlier versions.
        grant_digest: Of the grant that these tokens descend from, which identifies a repeated grant.
    """

    tokens: TokenSet
    client_secret: Secret | None = None
    private_key: Secret | None = None
    key_id: str | None = None
    endpoint_digest: str | None = None
    grant_digest: str | None = None


def encode_secrets(secrets: CredentialSecrets) -> bytes:
    """Return the record to seal, with the secrets in clear."""
    record = {
        "tokens": token_set_to_record(secrets.tokens),
        "client_secret": _plain(secrets.client_secret),
        "private_key": _plain(secrets.private_key),
        "key_id": secrets.key_id,
        "endpoint_digest": secrets.endpoint_digest,
        "grant_digest": secrets.grant_digest,
    }
    return plain_json(record).encode()


def decode_secrets(plain: bytes) -> CredentialSecrets:
    """Return the secrets of an opened record; raise CredentialUnreadableError if it holds none."""
    try:
        record: Mapping[str, Any] = json.loads(plain)
        tokens = record["tokens"]
        if isinstance(tokens, str):  # records of earlier versions hold JSON inside JSON
            tokens = json.loads(tokens)
        return CredentialSecrets(
            tokens=token_set_from_record(tokens),
            client_secret=_secret(record["client_secret"]),
            private_key=_secret(record["private_key"]),
            key_id=record["key_id"],
            endpoint_digest=record.get("endpoint_digest"),
            grant_digest=record.get("grant_digest"),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CredentialUnreadableError("a sealed record opens but holds no credential") from None


def encode_answer(status: int, headers: Mapping[str, Sequence[str]], body: bytes) -> bytes:
    """Return the record to seal of a raw response. Its body is stored as bytes, readable or not. Spec: R12."""
    record = {
        "status": status,
        "headers": {
            name: list(values) for name, values in headers.items() if name in ("date", "content-type")
        },
        "body": base64.b64encode(body).decode(),
    }
    return plain_json(record).encode()


def decode_answer(plain: bytes) -> tuple[int, dict[str, list[str]], bytes]:
    """Return status, headers and body of a raw response; raise CredentialUnreadableError otherwise."""
    try:
        record = json.loads(plain)
        return record["status"], record["headers"], base64.b64decode(record["body"])
    except (KeyError, TypeError, ValueError):
        raise CredentialUnreadableError("a journal entry opens but holds no response") from None


def _plain(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def _secret(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)
