"""The sealed record: AES-256-GCM under a data key, bound to the place where it is stored.

    version (1) | key id (16) | nonce (12) | ciphertext and tag

Associated data are the header and the five words of its context, each with its length before it, so that
no two contexts have the same bytes. A record that is moved, altered, or belongs to another generation does
not open. A whole older row does, as after a restore. Spec: R36, S11.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.engine.ports import SealContext, Sealed
from fairlead.errors import CredentialUnreadableError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
_VERSION = b"\x01"
_HEADER_BYTES = 1 + 16
_SHORTEST = _HEADER_BYTES + NONCE_BYTES + TAG_BYTES
_HEADER_LENGTH, _ID_LENGTH = _HEADER_BYTES.to_bytes(4, "big"), (16).to_bytes(4, "big")
_GENERATION = struct.Struct(">IQ")  # the length, and the word


def prefixed(*words: bytes) -> bytes:
    """Return *words* joined, each after its length.

    >>> prefixed(b"a", b"bc") == prefixed(b"ab", b"c")
    False
    """
    return b"".join([len(word).to_bytes(4, "big") + word for word in words])


def seal(cipher: AESGCM, key_id: UUID, context: SealContext, plain: bytes) -> Sealed:
    """Seal *plain* for *context* under the data key *key_id*."""
    header = _VERSION + key_id.bytes
    nonce = os.urandom(NONCE_BYTES)
    return Sealed(key_id, header + nonce + cipher.encrypt(nonce, plain, _bound_to(header, context)))


def key_of(context: SealContext, sealed: Sealed) -> UUID:
    """Return the id of the data key that opens *sealed*; CredentialUnreadableError if the record is malformed."""
    blob = sealed.blob
    if len(blob) < _SHORTEST:
        raise unreadable(context, "is cut off")
    if blob[:1] != _VERSION:
        raise unreadable(context, "has an unknown form")
    if blob[1:_HEADER_BYTES] != sealed.key_id.bytes:
        raise unreadable(context, "names another data key than its row")
    return sealed.key_id


def unseal(cipher: AESGCM, context: SealContext, sealed: Sealed) -> bytes:
    """Open a record that `key_of` has checked; CredentialUnreadableError if it was altered or moved."""
    blob = sealed.blob
    header, rest = blob[:_HEADER_BYTES], blob[_HEADER_BYTES:]
    try:
        return cipher.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], _bound_to(header, context))
    except InvalidTag:
        raise unreadable(context, "was altered, or belongs to another row or generation") from None


def unreadable(context: SealContext, why: str) -> CredentialUnreadableError:
    """Return the error for a record of *context*."""
    message = f"the sealed {context.field} of connection {context.connection_id} {why}"
    return CredentialUnreadableError(message, tenant=context.tenant, provider=context.provider)


def _bound_to(header: bytes, context: SealContext) -> bytes:
    """Return *header* and the words of *context*, each with its length in front."""
    return b"".join(
        (
            _HEADER_LENGTH,
            header,
            _prefixed_text(context.tenant),
            _ID_LENGTH,
            context.connection_id.bytes,
            _prefixed_text(context.provider),
            _prefixed_text(context.field),
            _GENERATION.pack(8, context.generation),
        )
    )


@lru_cache(maxsize=16_384)
def _prefixed_text(text: str) -> bytes:
    return prefixed(text.encode())
