"""A call, its result, and the source of its credential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fairlead.engine.ports import ConnectionKey, HttpResponse
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.calls.next_step import is_idempotent
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.tokens.token import PublicToken

MAX_BODY_BYTES = 16 << 20


@dataclass(slots=True)  # not to be changed; frozen, each field would cost a call 0.1 us
class Call:
    """One call through a connection.

    Attributes:
        url: Absolute. The credential is added later.
        api, operation, cost, priority_class, wait_s: As in `CallRequest`.
        deadline_s: For the whole call, with waits and retries. None: as the connection has it, 60 by default.
            In a job never later than the job allows.
        idempotent: Whether it may be executed twice. None: by its method and headers.
        max_body_bytes: The bound on the decoded response. Default: 16 MiB.
        started_mono: When it was requested, by `Pipeline.now_mono`. None: when the pipeline gets it.
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

    @property
    def is_idempotent(self) -> bool:
        """Whether the call may be repeated: as the caller says, else by its method and headers."""
        return is_idempotent(self.method, self.headers) if self.idempotent is None else self.idempotent


class CallResult(NamedTuple):
    """The result of a call: its response, parsed and classified. *attempts*: how often it was sent."""

    response: HttpResponse
    raw_response: RawResponse
    verdict: Verdict
    attempts: int
    waited_s: float
    """The time spent waiting for credentials, limits and retries."""


class TokenSource(Protocol):
    """The source of credentials."""

    def cached(self, key: ConnectionKey) -> PublicToken | None:
        """Return a valid token from memory, if there is one."""
        ...

    async def token(self, key: ConnectionKey) -> PublicToken:
        """Return a valid token. Raises NotFoundError, or a RefusedError such as ReauthRequiredError."""
        ...

    async def refreshed_after(self, key: ConnectionKey, than: int | None) -> PublicToken:
        """Return a token of a later generation than *than*, which the provider rejected.

        None: a token that is valid for more than a minute is enough. Raises as `token`.
        """
        ...
