"""What a client must know of a vendor to run a bulk operation; one small module has it for each vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from fairlead.policy.limits.feedback.raw_response import RawResponse


class BulkState(Enum):
    """How an operation is doing."""

    RUNNING = "running"
    COMPLETED = "completed"
    """It ended as it should, with or without rows."""
    ENDED = "ended"
    """It failed, was cancelled, or its result is gone."""


@dataclass(frozen=True, slots=True)
class BulkQuery:
    """A question of GraphQL. *changes*: it begins something, and is not to be asked twice."""

    query: str = field(repr=False)
    variables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    changes: bool = False


@dataclass(frozen=True, slots=True)
class BulkSeen:
    """A bulk operation as the vendor reports it.

    Attributes:
        status, code: In the vendor's words.
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
class BulkDenied:
    """It was not begun; *code* and *message* are the vendor's."""

    code: str
    message: str


class BulkProtocol(Protocol):
    """One vendor's way. *version*: of its API, where it has such."""

    @property
    def api(self) -> str:
        """Which of the profile's APIs is asked."""
        ...

    def kind_of(self, text: str) -> str:
        """Which of the profile's kinds an operation of this text is."""
        ...

    def begin(self, kind: str, text: str, variables: Mapping[str, Any]) -> BulkQuery:
        """What begins one. InvalidInputError where *variables* lack something."""
        ...

    def begun(self, reply: RawResponse) -> BulkSeen | BulkDenied:
        """What the answer to `begin` says."""
        ...

    def look(self, running_id: str, version: str) -> BulkQuery:
        """What asks after one."""
        ...

    def latest(self, kind: str, version: str) -> BulkQuery:
        """What asks for the latest ones."""
        ...

    def seen(self, reply: RawResponse) -> tuple[BulkSeen, ...]:
        """The operations in an answer to `look` or `latest`, newest first."""
        ...

    def may_share(self, kind: str) -> bool:
        """Whether two operations of one kind and text give the same rows, whoever began them."""
        ...
