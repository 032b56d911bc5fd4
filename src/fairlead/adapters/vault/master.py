"""Master keys: 32 random bytes from the environment or a file, or a key that never leaves a KMS.

Written as ``key`` or ``id:key``, in base64 or hex; several by comma or line while rotating, the first one
wraps. Without an id a key is called by its fingerprint, which proves later that it is the same key.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import pkgutil
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead._checked_file import read_checked
from fairlead._core.known_secrets import KNOWN_SECRETS
from fairlead._core.secret import Secret
from fairlead.adapters.vault.envelope import KEY_BYTES, NONCE_BYTES, TAG_BYTES, prefixed
from fairlead.errors import (
    CredentialUnreadableError,
    DependencyUnavailableError,
    FairleadError,
    InvalidConfigError,
    MasterKeyMismatchError,
    MasterKeyMissingError,
)

_WRAP_VERSION = b"\x01"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_MAX_FILE_BYTES = 1 << 16
KMS_S = 5.0
"""The most seconds that one call of a KMS hook may take. The next caller starts a new call."""
_OLDER = "put that key behind the newest one, in a line of the key file or as new,old in FAIRLEAD_MASTER_KEY"
_FEWEST_DISTINCT_BYTES = 8  # 32 random bytes have fewer once in 10^40


class Kms(Protocol):
    """A key management service that wraps data keys; its own key never leaves it.

    *context* names the data key, and the same context is passed to unwrap. Raise MasterKeyMismatchError if
    the service says that it cannot open *wrapped*. Any other error, and a call of over five seconds, is
    reported as DependencyUnavailableError.
    """

    @property
    def master_id(self) -> str:
        """Stable name of the key in the KMS, stored beside what it wrapped; 1 to 64 plain characters."""
        ...

    async def wrap(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt a 32-byte data key."""
        ...

    async def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Decrypt what was wrapped under the same *context*."""
        ...


class MasterKey:
    """A master key in memory; a Kms of its own. *master_id* defaults to the key's fingerprint."""

    def __init__(self, key: bytes, master_id: str | None = None) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidConfigError(
                f"a master key has {len(key)} bytes instead of {KEY_BYTES}", hint=_MAKE_ONE
            )
        if len(set(key)) < _FEWEST_DISTINCT_BYTES:
            raise InvalidConfigError("a master key is not random", hint=_MAKE_ONE)
        self._cipher = AESGCM(key)
        self._fingerprint = fingerprint(key)
        self.master_id = master_id or self._fingerprint

    def __repr__(self) -> str:
        return f"MasterKey({self.master_id!r})"

    async def wrap(self, plain: bytes, context: bytes) -> bytes:
        """Return version | nonce | ciphertext and tag."""
        nonce = os.urandom(NONCE_BYTES)
        return _WRAP_VERSION + nonce + self._cipher.encrypt(nonce, plain, _WRAP_VERSION + context)

    async def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the data key.

        Raises:
            MasterKeyMismatchError: This key did not wrap it.
            CredentialUnreadableError: The row was altered.
        """
        length = 1 + NONCE_BYTES + KEY_BYTES + TAG_BYTES
        if len(wrapped) != length or wrapped[:1] != _WRAP_VERSION:
            raise CredentialUnreadableError("a data key is damaged in the database", hint=_RESTORE)
        nonce, sealed = wrapped[1 : 1 + NONCE_BYTES], wrapped[1 + NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, sealed, _WRAP_VERSION + context)
        except InvalidTag:
            raise self._refusal() from None

    def _refusal(self) -> Exception:
        # A fingerprint proves that this is the key that wrapped it, so it must be the row that changed.
        if self.master_id == self._fingerprint:
            return CredentialUnreadableError("a data key was altered in the database", hint=_RESTORE)
        return MasterKeyMismatchError(f"the master key {self.master_id!r} does not open the data")


class MasterKeyring:
    """The master keys of this process, newest first. All of them unwrap."""

    def __init__(self, masters: Sequence[Kms]) -> None:
        if not masters:
            raise MasterKeyMissingError("there is no master key", hint=_NO_KEY)
        self._masters = {master.master_id: master for master in masters}
        if len(self._masters) != len(masters):
            raise InvalidConfigError(
                "two master keys have the same id", hint="give each key an id of its own"
            )
        self._current = masters[0]

    @property
    def current_id(self) -> str:
        """The id of the newest master key."""
        return self._current.master_id

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all master keys, the current one first."""
        return tuple(self._masters)

    async def wrap(self, plain: bytes, tenant: str, key_id: bytes, master_id: str) -> bytes:
        """Wrap the data key *key_id* of *tenant* under the master key *master_id*, one of ours."""
        master = self._masters[master_id]
        async with _kms_call(master):
            return await master.wrap(plain, _context(tenant, key_id, master_id))

    async def unwrap(self, wrapped: bytes, tenant: str, key_id: bytes, master_id: str) -> bytes:
        """Open a wrapped data key; raises MasterKeyMissingError, MasterKeyMismatchError or
        CredentialUnreadableError.
        """
        master = self._masters.get(master_id)
        if master is None:
            raise MasterKeyMissingError(
                f"the data is sealed under the master key {master_id!r}, "
                f"but this process has only {', '.join(self.ids)}",
                tenant=tenant,
                hint=_OLDER,
            )
        async with _kms_call(master):
            plain = await master.unwrap(wrapped, _context(tenant, key_id, master_id))
        if len(plain) != KEY_BYTES:
            raise MasterKeyMismatchError(f"the master key {master_id!r} gave no data key", tenant=tenant)
        return plain


@asynccontextmanager
async def _kms_call(master: Kms) -> AsyncIterator[None]:
    """Limit the time of a KMS call and replace its error messages, which may hold secrets."""
    try:
        async with asyncio.timeout(KMS_S):
            yield
    except FairleadError:
        raise
    except Exception as error:
        raise DependencyUnavailableError(
            f"the KMS could not be asked for the key {master.master_id!r}: {type(error).__name__}",
            hint="see to the KMS and to this process' access to it",
        ) from error


def fingerprint(key: bytes) -> str:
    """Return a name for *key* that does not reveal it."""
    return hashlib.sha256(b"fairlead master key\x00" + key).hexdigest()[:16]


def generate() -> str:
    """Return a new master key as ``id:key``, ready for the environment or a file."""
    key = os.urandom(KEY_BYTES)
    return f"{fingerprint(key)}:{base64.b64encode(key).decode()}"


def load_keyring(
    value: Secret | None = None, file: Path | None = None, kms: str | None = None
) -> MasterKeyring:
    """Return the master keys of a setting, a file (mode 0600) and a KMS hook (``module:object``).

    The KMS comes first, then the setting, then the file, so that a move from one to the next is a rotation.

    Raises:
        MasterKeyMissingError: Nothing is set, or the file does not exist.
        InvalidConfigError: A key or the hook is not usable.
    """
    masters: list[Kms] = []
    if kms is not None:
        masters.append(_hook(kms))
    if value is not None:
        masters += parse_keys(value.reveal(), "the master key setting")
    if file is not None:
        masters += parse_keys(_read(file), f"the master key file {file}")
    return MasterKeyring(masters)


def parse_keys(text: str, where: str) -> list[MasterKey]:
    """Return the keys in *text*. An error names *where*, and never holds a character of a key."""
    items = [item.strip() for item in re.split(r"[,\n]", text) if item.strip()]
    if not items:
        raise MasterKeyMissingError(f"{where} is empty")
    return [_parse_key(item, f"key {number} of {where}") for number, item in enumerate(items, start=1)]


def _parse_key(item: str, where: str) -> MasterKey:
    label, colon, written = item.rpartition(":")
    if colon and not _ID.fullmatch(label):
        raise InvalidConfigError(f"{where} has an unusable id", hint="an id is 1 to 64 of A-Z a-z 0-9 _ . -")
    key = _decoded(written.strip())
    if key is None or len(key) != KEY_BYTES:
        raise InvalidConfigError(f"{where} is not {KEY_BYTES} bytes in base64 or hex", hint=_MAKE_ONE)
    KNOWN_SECRETS.add(written.strip(), pinned=True)
    return MasterKey(key, label or None)


def _decoded(written: str) -> bytes | None:
    """Return the key that *written* is in hex or base64, also URL-safe; None if it is neither."""
    if _HEX.fullmatch(written):
        return bytes.fromhex(written)
    padded = written.rstrip("=")
    padded += "=" * (-len(padded) % 4)
    try:
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return None


def _read(file: Path) -> str:
    try:
        content = read_checked(file, most_bytes=_MAX_FILE_BYTES, is_secret=True)
    except FileNotFoundError:
        raise MasterKeyMissingError(f"the master key file {file} is not there") from None
    except OSError as error:
        raise InvalidConfigError(
            f"the master key file {file} cannot be read: {error.strerror}", hint="check its owner and mode"
        ) from None
    return content.data.decode("ascii", "replace")


def _hook(path: str) -> Kms:
    """Return the object at *path*. A class or function is called without arguments."""
    try:
        target = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfigError(
            f"the KMS hook {path!r} cannot be loaded: {type(error).__name__}",
            hint="give it as module:object; the module must be importable here",
        ) from error
    hook: Kms = target if _is_kms(target) else target()
    if not _is_kms(hook) or not _ID.fullmatch(hook.master_id):
        raise InvalidConfigError(
            f"the KMS hook {path!r} is no fairlead.adapters.vault.Kms",
            hint="it needs master_id (1 to 64 plain characters), wrap and unwrap",
        )
    return hook


def _is_kms(target: object) -> bool:
    return not isinstance(target, type) and all(
        hasattr(target, name) for name in ("master_id", "wrap", "unwrap")
    )


def _context(tenant: str, key_id: bytes, master_id: str) -> bytes:
    return prefixed(b"fairlead data key", tenant.encode(), key_id, master_id.encode())


_NO_KEY = (
    "make one with `fairlead init`; where data is sealed already, set FAIRLEAD_MASTER_KEY or"
    " FAIRLEAD_MASTER_KEY_FILE to the key that sealed it"
)
_MAKE_ONE = "make one with `fairlead init`, or `openssl rand -base64 32`"
_RESTORE = "restore the table data_key from a backup of the same time as the credentials"
