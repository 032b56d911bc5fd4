"""Connections: their keys, and the parts of them that rarely change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from fairlead.engine.ports.values import Json
from fairlead.errors import NotFoundError

CONNECT_HINT = "connect the account with `fairlead connections add`"


class ConnectionKey(NamedTuple):
    """Names a connection: one tenant's account at one provider. Each call looks things up by it."""

    tenant: str
    provider: str
    account: str = "default"


def connection_not_found(key: ConnectionKey, *, hint: str = CONNECT_HINT) -> NotFoundError:
    """Return the error for a connection that does not exist."""
    return NotFoundError(
        f"there is no connection {key.account!r}", tenant=key.tenant, provider=key.provider, hint=hint
    )


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted record, and the id of the data key that opens it."""

    key_id: UUID
    blob: bytes


@dataclass(frozen=True, slots=True)
class LearnedSlots:
    """The number of calls that may be in flight, as stated in a response.

    Attributes:
        version: Above the version of the connection, so that the pool adopts *capacity* until the settings
            change.
    """

    capacity: int
    version: int


@dataclass(frozen=True, slots=True)
class Connection:
    """The part of a connection that rarely changes, without secrets.

    Attributes:
        variant: The variant of the provider's profile; None: its default.
        account_id: The provider's id of the account, as a response stated it; None: unknown.
        client_id: The id of the OAuth app.
        endpoint: The values that complete the provider's URLs, such as a shop's name.
        settings: The connection's own settings, which override the profile's.
        version: Grows with every change.
        learned_limits: Capacity and units per second by limit, as responses stated them under these settings.
        learned_slots: As responses stated it under these settings.
        existed_s: The age when it was read, or of an older connection to the same account. Infinite: an hour
            or more, or unknown. For the gate.
    """

    connection_id: UUID
    key: ConnectionKey
    variant: str | None
    account_id: str | None
    client_id: str
    endpoint: Mapping[str, str]
    settings: Mapping[str, Json]
    version: int = 1
    learned_limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    learned_slots: LearnedSlots | None = None
    existed_s: float = field(default=math.inf, compare=False)


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """A change of the settings of *connection* to *new_settings*.

    If it changes where the secrets may be sent, *sealed* replaces the record *expected_sealed*.
    """

    connection: Connection
    new_settings: Mapping[str, Json]
    expected_sealed: Sealed | None = None
    sealed: Sealed | None = None

    @property
    def changed(self) -> Mapping[str, Json]:
        """The settings that are new or have another value."""
        old = self.connection.settings
        return {name: value for name, value in self.new_settings.items() if (name, value) not in old.items()}

    @property
    def removed(self) -> list[str]:
        """The names of the settings that are dropped."""
        return sorted(self.connection.settings.keys() - self.new_settings.keys())

    @property
    def has_changes(self) -> bool:
        """Whether anything changes."""
        return bool(self.changed or self.removed)
