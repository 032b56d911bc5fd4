"""The protocol of bulk operations; one small module implements it for each provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from fairlead.policy.limits.feedback.raw_response import RawResponse


class BulkState(Enum):
    """The state of a bulk operation."""

    RUNNING = "running"
    COMPLETED = "completed"
    """It completed, with or without rows."""
    ENDED = "ended"
    """It failed, was cancelled, or its result is gone."""


@dataclass(frozen=True, slots=True)
class BulkQuery:
    """A GraphQL request. *changes*: it starts an operation, so it must not be repeated."""

    query: str = field(repr=False)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    changes: bool = False


@dataclass(frozen=True, slots=True)
class BulkStatus:
    """A bulk operation as the provider reports it.

    Attributes:
        status, code: The provider's own.
        text: The operation's query or mutation.
        count: Objects so far.
        url: The temporary address of its rows, or None.
        created_s: The Unix time of its beginning; None if unknown.
    """

    id: str
    state: BulkState
    status: str
    text: str = field(default="", repr=False)
    code: str = ""
    count: int | None = None
    url: str | None = field(default=None, repr=False)
    created_s: float | None = None


@dataclass(frozen=True, slots=True)
class BulkRejection:
    """The refusal to start an operation; *code* and *message* are the provider's."""

    code: str
    message: str


class BulkProtocol(Protocol):
    """The bulk operations of one provider. *version* is that of its API, if it has versions."""

    @property
    def api(self) -> str:
        """The API of the profile that runs bulk operations."""
        ...

    def kind_of(self, text: str) -> str:
        """Return the kind of an operation with this text, as the profile names it."""
        ...

    def start_query(self, kind: str, text: str, variables: Mapping[str, Any]) -> BulkQuery:
        """Return the request that starts an operation.

        Raises:
            InvalidInputError: *variables* are not those that the kind takes.
        """
        ...

    def parse_start(self, response: RawResponse) -> BulkStatus | BulkRejection:
        """Parse the response to `start_query`."""
        ...

    def status_query(self, running_id: str, version: str) -> BulkQuery:
        """Return the request for the status of one operation."""
        ...

    def list_query(self, kind: str, version: str) -> BulkQuery:
        """Return the request for the latest operations."""
        ...

    def parse_operations(self, response: RawResponse) -> tuple[BulkStatus, ...]:
        """Parse the operations in a response to `status_query` or `list_query`, newest first."""
        ...

    def may_share(self, kind: str) -> bool:
        """Return whether two operations of one kind and text give the same rows, also if another client started one."""
        ...
