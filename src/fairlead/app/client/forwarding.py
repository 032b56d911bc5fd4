"""Requests of other HTTP libraries, sent as calls of a connection: what `fairlead.httpx` is made of.

The answer is taken by a task of its own, piece by piece, as the other library asks for it: a slot that is
lost ends that task, and not whatever code of the user runs in between.

Spec: C1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fairlead.engine.calls.buffered import BufferedStream
from fairlead.engine.calls.pipeline import Pipeline
from fairlead.engine.calls.request import Call
from fairlead.engine.ports import TRANSPORT_HEADERS, Connection, HttpStream
from fairlead.errors import CallFailedError, InvalidInputError
from fairlead.policy.calls.classify.status import is_success
from fairlead.policy.failures.category import Category
from fairlead.policy.providers.call_settings import DEADLINE_S
from fairlead.policy.providers.origin import origin_of
from fairlead.policy.providers.profile import Profile
from fairlead.policy.reasons import call_reasons

FOREIGN_BYTES = 64 << 20
_FRAMING = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
_GRACE_S = 1.0  # the call's own deadline comes first, and tells more


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request as another library has built it; its own credential is left out. *deadline_s*: see Call."""

    method: str
    url: str = field(repr=False)
    headers: Sequence[tuple[str, str]] = field(repr=False)
    body: bytes | None = field(repr=False)
    priority: str | int | None = None
    deadline_s: float | None = None
    idempotent: bool | None = None
    max_body_bytes: int = FOREIGN_BYTES


def deadline_of(told_s: float | None, read_s: float | None) -> float | None:
    """*told_s*; else the library's own timeout of a read where that is over 60 s; else the connection's."""
    return told_s if told_s is not None else read_s if read_s and read_s > DEADLINE_S else None


def forwarded_call(
    connection: Connection,
    profile: Profile,
    request: ForwardedRequest,
    priority_class: int | None,
    started_mono: float | None = None,
) -> Call:
    """The call that *request* is. Where it may go is the pipeline's to say."""
    left_out = {*TRANSPORT_HEADERS, "authorization", profile.credential_header.name.lower()}
    spelled = {name.lower(): name for name in profile.credential_header.fixed}
    headers: dict[str, str] = {}
    for name, value in request.headers:
        key = name.lower()
        if key not in left_out:
            key = spelled.get(key, key)
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return Call(
        connection.key,
        request.method,
        request.url,
        headers,
        request.body,
        api=_api_of(connection, profile, request.url),
        priority_class=priority_class,
        deadline_s=request.deadline_s,
        idempotent=request.idempotent,
        max_body_bytes=request.max_body_bytes,
        started_mono=started_mono,
    )


def _api_of(connection: Connection, profile: Profile, url: str) -> str:
    """Which of the provider's APIs it is a call of: the one whose address is the longest beginning of it."""
    found: list[tuple[int, str]] = []
    for name in profile.apis:
        with suppress(InvalidInputError):
            base = profile.api_url(name, connection.endpoint)
            if origin_of(base) == origin_of(url) and _is_below(url, base):
                found.append((len(base), name))
    return max(found)[1] if found else profile.limits.api


def _is_below(url: str, base: str) -> bool:
    rest = url.removeprefix(base.rstrip("/"))
    return rest != url and rest[:1] in ("", "/", "?")


class ForwardedResponse:
    """The answer to a ForwardedRequest. *error*: why it is a failure, judged here; None for a success.

    Its body is iterated over once; whoever does not read it to its end calls ``aclose``. Else it is dropped
    when the call's deadline, or *deadline_s*, which its connection has, is over.
    """

    def __init__(self, pipeline: Pipeline, call: Call, deadline_s: float) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.error: CallFailedError | None = None
        self._began = asyncio.Event()
        self._offered = asyncio.Event()
        self._taken = asyncio.Event()
        self._ended = False
        self._chunk: bytes | None = None
        self._raised: BaseException | None = None
        self._task = asyncio.create_task(self._run(pipeline, call, deadline_s), name="fairlead-forward")

    async def head(self) -> ForwardedResponse:
        """Itself once its head is there; raises what stood against it, where there is no answer."""
        try:
            await self._began.wait()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if not self.status:
            assert self._raised is not None
            raise self._raised
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await self._offered.wait()
            chunk, self._chunk = self._chunk, None
            if chunk is None:
                if self._raised is not None:
                    raise self._raised
                return
            if not self._ended:
                self._offered.clear()
            self._taken.set()
            yield chunk

    async def aclose(self) -> None:
        """Drop what has not come yet, and give the call's place back."""
        self._task.cancel()
        await asyncio.wait({self._task})

    # ---- its task ------------------------------------------------------------------------------

    async def _run(self, pipeline: Pipeline, call: Call, deadline_s: float) -> None:
        total_deadline_s = deadline_s if call.deadline_s is None else call.deadline_s
        try:
            async with asyncio.timeout(total_deadline_s + _GRACE_S):
                await self._pass_on(pipeline, call)
        except TimeoutError:
            self._raised = _lost(
                call, "the answer was not read within the call's deadline", call_reasons.TIMEOUT.code
            )
        except asyncio.CancelledError:  # by aclose alone: whoever reads is not cancelled himself
            self._raised = _lost(
                call, "the answer was dropped: its client was closed", call_reasons.CLOSED.code
            )
        except BaseException as error:  # noqa: BLE001 (whatever it is, the one who reads is told)
            self._raised = error
        finally:
            self._ended = True
            self._began.set()
            self._offered.set()

    async def _pass_on(self, pipeline: Pipeline, call: Call) -> None:
        try:
            async with pipeline.stream(call, read_whole=_is_judged) as stream:
                await self._offer(stream)
        except CallFailedError as failed:
            if self.status or failed.response is None:
                raise
            self.error = failed
            await self._offer(BufferedStream(failed.response))

    async def _offer(self, stream: HttpStream) -> None:
        self.headers = [
            (name, value)
            for name, values in stream.headers.items()
            if name not in _FRAMING
            for value in values
        ]
        self.status = stream.status
        self._began.set()
        async for chunk in stream:
            self._chunk = chunk
            self._offered.set()
            await self._taken.wait()
            self._taken.clear()


def _lost(call: Call, what: str, reason: str) -> CallFailedError:
    key, category = call.key, Category.TRANSIENT_NETWORK
    error = CallFailedError(what, tenant=key.tenant, provider=key.provider, category=category, reason=reason)
    error.idempotent = call.is_idempotent
    return error


def _is_judged(stream: HttpStream) -> bool:
    """JSON and XML may tell of a failure in a 200; any other success is passed on as it comes.

    The other library's caller is to see the whole of a failure: it tells nobody that it was cut.
    """
    if not is_success(stream.status):
        return True
    kind = next(iter(stream.headers.get("content-type", ())), "").partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json", "/xml", "+xml"))
