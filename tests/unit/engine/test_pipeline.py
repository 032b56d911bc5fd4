"""The way of one call, with everything around it played: no server, no waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from fairlead._core.secret import Secret
from fairlead.engine.calls.call_state import CallConfig
from fairlead.engine.calls.pipeline import Pipeline
from fairlead.engine.calls.request import Call
from fairlead.engine.limits.admission import Admission, CallRequest
from fairlead.engine.ports import (
    Admitted,
    Connection,
    ConnectionKey,
    HttpRequest,
    HttpResponse,
    NoResponse,
    NoResponseKind,
    StreamBrokenError,
)
from fairlead.errors import (
    CallFailedError,
    InvalidInputError,
    LimiterUnavailableError,
    LimitExceededError,
    NoRefreshTokenError,
    ReauthRequiredError,
    RefreshInProgressError,
    RefusedError,
    SlotLostError,
)
from fairlead.events import CallAttempted
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import Domain, Plan
from fairlead.policy.providers.connection_calls import call_settings_of, resolve_allowed_origins
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.token import PublicToken
from fairlead.testing import ManualClock

PROFILES = load_profiles()
KEY = ConnectionKey("acme", "stripe", "default")
GET = Call(KEY, "GET", "https://api.stripe.com/v1/items")
POST = replace(GET, method="POST", body=b"{}")
CONNECTION = Connection(UUID(int=1), KEY, None, None, "client", {}, {})


def answer(status: int, body: bytes = b"{}", **headers: str) -> HttpResponse:
    fields = {name.replace("_", "-"): (value,) for name, value in headers.items()}
    return HttpResponse(status, {"content-type": ("application/json",), **fields}, body, 0.01)


class Streamed:
    """An answer chunk by chunk; one of "broken" breaks off, as *kind* says."""

    kind: NoResponseKind = "reset"

    def __init__(self, response: HttpResponse) -> None:
        self.status, self.headers, self._body = response.status, response.headers, response.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
        if self._body == b"broken":
            raise StreamBrokenError(NoResponse(True, self.kind, "cut off"), self)


@dataclass
class World:
    """Answers in their order, and what was done."""

    answers: list[HttpResponse | NoResponse | Exception]
    clock: ManualClock = field(default_factory=lambda: ManualClock(autojump_s=0.0))
    sent: list[HttpRequest] = field(default_factory=list)
    events: list[CallAttempted] = field(default_factory=list)
    wishes: list[CallRequest] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)
    inside: int = 0
    generation: int = 1
    asked_tokens: int = 0
    no_newer: Exception | None = None
    limited: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    def cached_connection(self, key: ConnectionKey) -> Connection | None:
        return None

    async def connection(self, key: ConnectionKey) -> Connection:
        return CONNECTION

    async def admit(self, request: CallRequest) -> Admission:
        self.wishes.append(request)
        if isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)  # type: ignore[misc]
        admission = Admission(Admitted(Plan(Domain(("tenant", "acme"))), None, 0, 0, (), (3.0,)), 0.0)
        self.admissions.append(admission)
        self.inside += 1
        return admission

    def release_soon(self, admission: Admission, error: BaseException | None) -> SlotLostError | None:
        self.inside -= 1
        return None

    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        assert self.inside == 1, "it is sent without admission"
        self.sent.append(request)
        response = self.answers.pop(0)
        assert not isinstance(response, Exception)
        return response

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Any]:
        response = await self.send(request)
        yield response if isinstance(response, NoResponse) else Streamed(response)

    def is_limited(self, key: ConnectionKey, api: str | None, host: str) -> bool:
        return self.limited

    def cached(self, key: ConnectionKey) -> PublicToken | None:
        return None

    async def token(self, key: ConnectionKey) -> PublicToken:
        assert self.inside == 0, "a place is held while a token is asked for"
        self.asked_tokens += 1
        return PublicToken(Secret(f"t{self.generation}"), "Bearer", None, None, None, self.generation)

    async def refreshed_after(self, key: ConnectionKey, than: int | None) -> PublicToken:
        if self.no_newer is not None:
            raise self.no_newer
        assert than == self.generation
        self.generation += 1
        return await self.token(key)

    def config_for(self, connection: Connection) -> CallConfig:
        profile = PROFILES["stripe"]
        settings = call_settings_of(profile, self.settings, tenant="acme")
        origins = resolve_allowed_origins(profile, {}, settings.hosts)
        return CallConfig(rules_of(profile, self.settings), profile, settings, origins)

    def pipeline(self, draw: Callable[[], float] = lambda: 0.5) -> Pipeline:
        world: Any = self
        return Pipeline(
            self,
            world,
            world,
            self.config_for,
            clock=self.clock,
            epoch_s=lambda: 1_800_000_000.0,
            draw=draw,
            emit=self.events.append,  # type: ignore[arg-type]
        )

    async def call(self, call: Call) -> Any:
        """What comes of it; the clock jumps over what is slept."""
        return await self.pipeline().send(call)


def credentials(world: World) -> list[str]:
    return [str(dict(request.headers)["Authorization"].reveal()) for request in world.sent]  # type: ignore[union-attr]


async def test_an_answer_is_given_read_and_judged() -> None:
    world = World([answer(200, b'{"id": 7}')])
    response = await world.call(GET)
    assert response.raw_response.body == {"id": 7}
    assert (response.response.status, response.attempts) == (200, 1)
    assert credentials(world) == ["Bearer t1"]
    assert world.admissions[0].health is DestinationHealth.HEALTHY
    assert [event.then for event in world.events] == ["return"]


async def test_a_401_is_refreshed_and_replayed_once() -> None:
    world = World([answer(401), answer(200)])
    assert (await world.call(POST)).attempts == 2
    assert credentials(world) == ["Bearer t1", "Bearer t2"]
    world = World([answer(401), answer(401), answer(200)])
    with pytest.raises(CallFailedError) as failed:
        await world.call(GET)
    assert failed.value.category == "permanent_auth"
    assert len(world.sent) == 2


async def test_a_failure_that_may_pass_is_tried_again_after_its_delay() -> None:
    world = World([answer(502), NoResponse(True, "reset", "cut off"), answer(200)])
    started_mono = world.clock.monotonic()
    response = await world.call(GET)
    assert response.attempts == 3
    assert world.clock.monotonic() > started_mono
    assert [request.retry for request in world.wishes] == [None, True, True]


async def test_request_that_may_have_acted_is_not_sent_twice() -> None:
    for first in (answer(500), NoResponse(True, "reset", "cut off")):
        world = World([first, answer(200)])
        with pytest.raises(CallFailedError):
            await world.call(POST)
        assert len(world.sent) == 1
        world = World([first, answer(200)])
        assert (await world.call(replace(POST, headers={"Idempotency-Key": "k"}))).attempts == 2
    for harmless in (answer(429, retry_after="1"), NoResponse(False, "connect", "refused")):
        world = World([harmless, answer(200)])
        assert (await world.call(POST)).attempts == 2


async def test_permanent_failure_is_raised_at_once() -> None:
    for status in (400, 403, 404, 422):
        world = World([answer(status, b'{"error": {"message": "no such item"}}')])
        with pytest.raises(CallFailedError, match="no such item") as failed:
            await world.call(GET)
        assert failed.value.retry_after_s is None
        assert failed.value.response.status == status


async def test_no_wait_is_begun_that_cannot_end_in_time() -> None:
    world = World([answer(429, retry_after="50"), answer(200)])
    started_mono = world.clock.monotonic()
    with pytest.raises(CallFailedError, match="no time left") as failed:
        await world.call(replace(GET, deadline_s=30.0))
    assert world.clock.monotonic() == started_mono
    assert failed.value.retry_after_s is not None
    assert failed.value.retry_after_s >= 50


@pytest.mark.parametrize("retries", [0, 3])
async def test_a_wait_beyond_all_measure_is_told_as_its_cap(retries: int) -> None:
    world = World([answer(503, retry_after="9999999999")])
    world.settings = {"max_retries": retries}
    with pytest.raises(CallFailedError) as failed:
        await world.call(GET)
    assert failed.value.retry_after_s is not None
    assert 900 <= failed.value.retry_after_s <= 990


async def test_a_breaker_that_is_known_to_be_open_costs_nothing() -> None:
    closed = LimitExceededError(
        "open", tenant="acme", provider="stripe", retry_after_s=20.0, reason="breaker"
    )
    world = World([closed, answer(200)])
    pipeline = world.pipeline()
    for _ in range(3):
        with pytest.raises(LimitExceededError):
            await pipeline.send(GET)
    assert (len(world.wishes), world.asked_tokens) == (1, 1)
    await world.clock.advance(20.0)
    assert (await pipeline.send(GET)).attempts == 1


REFUSALS = [
    LimitExceededError("no room", retry_after_s=40.0, reason="rate"),
    LimitExceededError("open", retry_after_s=40.0, reason="breaker"),
    LimiterUnavailableError("no Redis", retry_after_s=40.0),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_retry_that_is_refused_is_the_failure_of_what_was_sent(refusal: RefusedError) -> None:
    world = World([answer(429, retry_after="1"), refusal, answer(200)])
    with pytest.raises(CallFailedError, match="status 429") as failed:
        await world.call(GET)
    assert (failed.value.sent, failed.value.attempts, failed.value.response.status) == (True, 1, 429)
    assert failed.value.category == "transient_rate_limit"
    assert (failed.value.retry_after_s, failed.value.__cause__) == (40.0, refusal)
    first = World([refusal])
    with pytest.raises(type(refusal)) as refused:
        await first.call(GET)
    assert refused.value is refusal, "nothing was sent: it is a refusal"


async def test_a_breaker_that_opened_meanwhile_is_the_failure_of_what_was_sent() -> None:
    world = World([answer(502), answer(200)])
    pipeline = world.pipeline()
    closed = LimitExceededError("open", retry_after_s=40.0, reason="breaker")

    async def opens(_delay_s: float) -> None:
        pipeline._open_breakers.record(KEY, "api.stripe.com", closed)

    world.clock.sleep = opens  # type: ignore[method-assign]
    with pytest.raises(CallFailedError, match="502") as failed:
        await pipeline.send(GET)
    assert isinstance(failed.value.__cause__, LimitExceededError)
    assert len(world.wishes) == 1


async def test_a_replay_after_a_401_that_is_refused_fails_as_the_refusal_does() -> None:
    """A 401 alone would be the end of the grant, and its job a dead letter."""
    world = World([answer(401), LimitExceededError("no room", retry_after_s=40.0, reason="rate")])
    with pytest.raises(CallFailedError) as failed:
        await world.call(GET)
    assert (failed.value.category, failed.value.retry_after_s) == ("transient_rate_limit", 40.0)


async def test_no_newer_token_is_told_as_it_is_unless_something_may_have_been_done() -> None:
    needs_reauth, busy = (
        ReauthRequiredError("the grant is gone"),
        RefreshInProgressError("another asks", retry_after_s=1.0),
    )
    for refusal in (needs_reauth, busy):
        world = World([answer(401)], no_newer=refusal)
        with pytest.raises(type(refusal)) as refused:
            await world.call(POST)
        assert refused.value is refusal
        world = World([answer(502), answer(401)], no_newer=refusal)
        with pytest.raises(CallFailedError) as failed:
            await world.call(GET)
        assert (failed.value.category, failed.value.__cause__) == (refusal.category, refusal)


@pytest.mark.parametrize(
    ("provider", "subject", "way_out"),
    [("stripe", "API key", "connections add --replace"), ("shopify", "access token, which", "the link of")],
)
async def test_a_401_to_what_cannot_be_renewed_says_that_the_vendor_refused_it(
    provider: str, subject: str, way_out: str
) -> None:
    none = NoRefreshTokenError("there is no refresh token", reason="no_refresh_token")
    for answers in ([answer(401)], [answer(502), answer(401)]):
        world = World(list(answers), no_newer=none)
        config_for = replace(world.config_for(CONNECTION), profile=PROFILES[provider])
        world.config_for = lambda _connection, config_for=config_for: config_for  # type: ignore[method-assign]
        with pytest.raises((NoRefreshTokenError, CallFailedError)) as refused:
            await world.call(GET)
        assert f"the provider refused the connection's {subject}" in str(refused.value)
        assert refused.value.category == "permanent_auth"
        error = refused.value.__cause__ or refused.value
        assert isinstance(error, NoRefreshTokenError)
        assert (error.code, error.reason, error.tenant) == ("no_refresh_token", "no_refresh_token", "acme")
        assert way_out in error.hint


async def test_the_credential_goes_to_the_provider_and_where_it_is_allowed() -> None:
    for url in (
        "https://evil.example/items",
        "http://api.stripe.com/v1/items",
        "https://api.stripe.com:8443/v1/items",
        "https://api.stripe.com@evil.example/",
        "https://api.stripe.com\\@evil.example/",
        "https://api.stripe.com.evil.example/",
        "https://files.stripe.com/v1/items",
    ):
        world = World([answer(200)])
        with pytest.raises(InvalidInputError, match="none of the provider's") as refused:
            await world.call(replace(GET, url=url))
        assert "hosts" in str(refused.value)
        assert (world.wishes, world.asked_tokens) == ([], 0), "it was begun"
    world = World([answer(200)], settings={"hosts": ["*.stripe.com", "evil.example"]})
    for url in ("https://files.stripe.com/v1/items", "https://evil.example/items"):
        world.answers = [answer(200)]
        await world.call(replace(GET, url=url))
    assert len(world.sent) == 2


async def test_a_timeout_in_a_hurry_says_nothing_of_the_destination() -> None:
    """After a ramp calls wait for their turn, and have little time left: they must not open it again."""
    timeout = NoResponse(True, "timeout", "no complete response before the deadline")
    for waited_s, health in ((0.0, DestinationHealth.UNHEALTHY), (57.0, DestinationHealth.NEUTRAL)):
        world = World([timeout], settings={"max_retries": 0})

        async def waits(key: ConnectionKey, world: World = world, waited_s: float = waited_s) -> PublicToken:
            await world.clock.sleep(waited_s)
            return await World.token(world, key)

        world.token = waits  # type: ignore[method-assign]
        with pytest.raises(CallFailedError):
            await world.call(GET)
        assert world.admissions[0].health is health
    world = World([timeout], settings={"max_retries": 0, "deadline_s": 0.2})
    with pytest.raises(CallFailedError):
        await world.call(GET)
    assert world.admissions[0].health is DestinationHealth.NEUTRAL


async def test_a_call_with_little_time_is_tried_again_in_it() -> None:
    assert (await World([answer(502), answer(200)]).call(replace(GET, deadline_s=4.0))).attempts == 2
    world = World([answer(502), answer(200)], settings={"deadline_s": 4.0})
    await world.call(GET)
    assert world.sent[0].deadline_s == 4.0
    await World([answer(200)], settings={"deadline_s": 4.0}).call(replace(GET, deadline_s=9.0))


async def test_no_retries_are_none_whatever_shipped_patterns_say() -> None:
    for status, code in (
        (429, "CONCURRENCY_LIMIT_EXCEEDED"),
        (429, "lock_timeout"),
        (429, "slow"),
        (500, "x"),
    ):
        body = b'{"error": {"code": "%s"}}' % code.encode()
        for retries in (0, 1):
            world = World([answer(status, body)] * 9, settings={"max_retries": retries})
            with pytest.raises(CallFailedError):
                await world.call(GET)
            assert len(world.sent) == 1 + retries, code
