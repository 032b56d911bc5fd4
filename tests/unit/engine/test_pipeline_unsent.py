"""Was it sent? What no attempt let out of this process is a refusal, and told as one."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from fairlead.engine.ports.http import NoAnswer, NoAnswerKind
from fairlead.errors import CallFailed, GateClosed, NotSent
from fairlead.policy.gate.breaker import Health
from fairlead.policy.job import Retry, outcome_of_exception
from tests.unit.engine.test_pipeline import GET, POST, World, answer

NEVER_LEFT: list[tuple[NoAnswerKind, str]] = [
    ("dns", "transient_network"),
    ("connect", "transient_network"),
    ("pool", "transient_network"),
    ("timeout", "transient_network"),
    ("tls", "permanent_config"),
    ("refused_address", "permanent_config"),
]


@pytest.mark.parametrize(("kind", "category"), NEVER_LEFT)
async def test_what_never_left_is_told_as_not_sent(kind: NoAnswerKind, category: str) -> None:
    never = NoAnswer(False, kind, "it did not leave")
    world = World([never] * 9)
    with pytest.raises(NotSent, match="it did not leave") as refused:
        await world.call(POST)
    assert (refused.value.sent, refused.value.reason, refused.value.category) == (False, kind, category)
    assert refused.value.retryable is category.startswith("transient")
    outcome = outcome_of_exception(refused.value, draw=0.5)
    assert isinstance(outcome, Retry), "a job burns an attempt: it would come back for ever"
    assert (outcome.failure.category, outcome.failure.code) == (category, f"not_sent_{kind}")
    async with AsyncExitStack() as stack:
        with pytest.raises(NotSent):
            await stack.enter_async_context(World([never] * 9).pipeline().stream(GET))


async def test_one_attempt_that_may_have_left_is_told_as_sent() -> None:
    never, lost = NoAnswer(False, "connect", "refused"), NoAnswer(True, "reset", "cut off")
    for answers in ([never, lost, never, never], [lost, never, never, never], [answer(502), *[never] * 3]):
        with pytest.raises(CallFailed) as failed:
            await World(answers).call(GET)
        assert failed.value.sent
    closed = GateClosed("no room", retry_after_s=40.0, reason="rate")
    with pytest.raises(GateClosed) as refused:
        await World([never, closed]).call(POST)
    assert refused.value is closed, "nothing was sent: it is a refusal"


async def test_a_full_pool_of_ours_is_no_fault_and_gives_back_what_was_taken() -> None:
    world = World([NoAnswer(False, "pool", "no free connection in time"), answer(200)])
    assert (await world.call(POST)).attempts == 2
    assert world.passages[0].health is Health.NEUTRAL
