"""CredentialStore: of two sends of one token the one that left later has the newer answer (R7, E44)."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from fairlead.engine.ports import Intent
from tests.contract.credential_steps import answer, intent, unknown_rotation
from tests.contract.stores import Stores

NEVER, MOMENT = datetime(3000, 1, 1, tzinfo=UTC), timedelta(seconds=1)


async def about_to_replay(stores: Stores) -> tuple[Intent, Intent, int]:
    """A send of unknown outcome, and the intent to send its token once more."""
    credential, first = await unknown_rotation(stores)
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    return first, replay, granted


async def test_a_send_that_left_late_comes_after_those_that_were_marked_before(stores: Stores) -> None:
    first, replay, granted = await about_to_replay(stores)
    late = partial(stores.credentials.mark_late, first.connection_id, 1)
    assert await late(NEVER) is None, "that one is about to go, and will be the newer"
    mark = await stores.credentials.mark_sent(replay.connection_id, replay.attempt_id)
    assert mark is not None
    assert await late(mark.at - MOMENT) is None, "the replay was marked since"
    epoch = await late(mark.at + 2 * MOMENT)
    await stores.pass_time(0.001)
    latest = await late(mark.at + 3 * MOMENT)
    assert epoch is not None
    assert latest is not None
    assert granted < epoch < latest
    assert await late(mark.at + MOMENT) is None, "two others left later"
    settled = replace(answer(first, mark, epoch), defer_s=math.inf)
    assert await stores.credentials.settle(settled) == "settled"


async def test_a_send_that_left_late_finds_the_answer_of_another_stored(stores: Stores) -> None:
    first, replay, granted = await about_to_replay(stores)
    late = partial(stores.credentials.mark_late, first.connection_id, 1)
    mark = await stores.credentials.mark_sent(replay.connection_id, replay.attempt_id)
    assert mark is not None
    assert await stores.credentials.settle(answer(replay, mark, granted)) == "settled"
    assert await late(mark.at - MOMENT) is None, "the one that is stored was marked since"
    epoch = await late(mark.at + 2 * MOMENT)
    assert epoch is not None
    assert await late(mark.at + MOMENT) is None, "another left later, and is about to be stored"
    now = answer(first, mark, epoch)
    assert await stores.credentials.settle(replace(now, from_generation=2, expected_sealed=None)) == "settled"
    assert await late(NEVER) is None, "two generations on, there is nothing to order"


async def test_where_no_send_of_that_token_is_known_there_is_no_place(stores: Stores) -> None:
    credential, first = await unknown_rotation(stores)
    late = partial(stores.credentials.mark_late, first.connection_id)
    assert await late(2, NEVER) is None
    assert await stores.credentials.release(first.connection_id, first.attempt_id)
    assert await late(1, NEVER) is None
    assert credential.generation == 1
