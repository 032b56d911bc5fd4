"""What a caller wants sent, what came of it, and where its credential is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fairlead.engine.ports import ConnectionKey
from fairlead.engine.ports.http import HttpResponse
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.calls.next_step import is_idempotent
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.tokens.token import PublicToken

MAX_BODY_BYTES = 16 << 20


@dataclass(slots=True)  # not to be changed; frozen, each field would cost a call 0.1 us
class Call:
    """One call through a connection. *url* is absolute; the token is added here.

    *api*, *operation*, *cost*, *priority_class*, *wait_s* as in CallRequest. *deadline_s*: for all of it, waits
    and retries too; None: as the connection has it, 60 by default; in a job never past what it has left.
    *idempotent*: it may be done twice; None: by its method and headers. *max_body_bytes* of the answer,
    decoded; default 16 MiB.
    """

    key: ConnectionKey
    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    api: str | None = None
    operation: str = ""
    cost: float | None = None
    priority_class: int | None = None
    wait_s: float | None = None
    deadline_s: float | None = None
    idempotent: bool | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    started_mono: float | None = None
    """When it was asked for, by ``Pipeline.now_s``; None: when it comes to the pipeline."""

    @property
    def is_idempotent(self) -> bool:
        """Whether the call may be repeated: as the caller says, else by its method and headers."""
        return is_idempotent(self.method, self.headers) if self.idempotent is None else self.idempotent


class CallResult(NamedTuple):
    """What came of a call: its answer, read and judged. *attempts*: how often it was sent."""

    response: HttpResponse
    raw_response: RawResponse
    verdict: Verdict
    attempts: int
    waited_s: float
    """For credentials, limits and retries."""


class TokenSource(Protocol):
    """Where the pipeline gets its credentials."""

    def cached(self, key: ConnectionKey) -> PublicToken | None:
        """One that is valid now, where nobody need be asked for it."""
        ...

    async def token(self, key: ConnectionKey) -> PublicToken:
        """One that is valid now. NotFoundError where there is no such connection; else a Refused
        (ReauthRequiredError...) where there is none to be had."""
        ...

    async def refreshed_after(self, key: ConnectionKey, than: int | None) -> PublicToken:
        """One of a later generation than *than*, which the provider refused; None: one that lasts for more
        than a minute will do. Raises as `token`."""
        ...
