"""Secrets at rest: a master key wraps a data key per tenant, which seals that tenant's records. Spec: T9.

    MasterKeyring   the master keys: the newest one that all processes hold wraps, and all of them unwrap
    Envelope        the sealed record, bound to the row and column where it is stored
    TenantVault     data keys in memory, created on first use; the port Vault

Without the master key, or without the database's data keys, everything is lost. A failure to open a record
changes neither.
"""

from __future__ import annotations

from fairlead.adapters.vault.master import Kms, MasterKey, MasterKeyring, generate, load_keyring
from fairlead.adapters.vault.vault import TenantVault

__all__ = ["Kms", "MasterKey", "MasterKeyring", "TenantVault", "generate", "load_keyring"]
