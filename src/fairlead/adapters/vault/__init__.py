"""Secrets at rest: a master key wraps a data key per tenant, which seals that tenant's records (T9).

    MasterRing   the master keys: the newest that all processes hold wraps, all unwrap
    Envelope     the sealed record, bound to the place where it is stored
    TenantVault  data keys in memory, minted on first use; the port Vault

Losing the master key loses everything; losing the database's data keys does too. Neither is ever changed
by a failure to open something.
"""

from __future__ import annotations

from fairlead.adapters.vault.master import Kms, MasterKey, MasterRing, generate, load_ring
from fairlead.adapters.vault.vault import TenantVault

__all__ = ["Kms", "MasterKey", "MasterRing", "TenantVault", "generate", "load_ring"]
