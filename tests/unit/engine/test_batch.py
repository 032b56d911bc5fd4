"""Batching, with the interleavings spelt out: no database, no sleeping, a gate that the test opens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairlead.engine.base.batch import Batcher
from fairlead.errors import DependencyUnavailableError, InvalidInputError
from tests.support.entrances import settled


class Store:
    """Doubles numbers; each statement waits until the test lets one go. "bad" items are refused."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.under_way = 0
        self.most_under_way = 0
        self._permits = asyncio.Semaphore(0)
        self.begun = asyncio.Semaphore(0)

    async def send(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.begun.release()
        try:
            await self._permits.acquire()
        finally:
            self.under_way -= 1
        if any(item < 0 for item in items):
            raise InvalidInputError(f"{min(items)} is negative")
        return [item * 2 for item in items]

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self._permits.release()


def ask(batch: Batcher[int, int], *items: int) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(batch(item)) for item in items]


async def test_an_idle_batcher_sends_at_once_and_a_busy_one_gathers() -> None:
    store = Store()
    batch = Batcher(store.send)
    first = ask(batch, 1)
    await store.begun.acquire()
    later = ask(batch, 2, 3, 4)
    store.let()
    assert await first[0] == 2
    await store.begun.acquire()
    store.let()
    assert await asyncio.gather(*later) == [4, 6, 8]
    assert store.batches == [[1], [2, 3, 4]]


async def test_calls_of_one_moment_share_a_statement() -> None:
    store = Store()
    store.let()
    batch = Batcher(store.send)
    assert await asyncio.gather(*(batch(i) for i in range(5))) == [0, 2, 4, 6, 8]
    assert store.batches == [[0, 1, 2, 3, 4]]


async def test_a_batch_is_bounded_and_order_is_kept() -> None:
    store = Store()
    store.let(100)
    batch = Batcher(store.send, max_size=3)
    assert await asyncio.gather(*(batch(i) for i in range(8))) == [i * 2 for i in range(8)]
    assert store.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.parametrize("parallel", [1, 2, 3])
async def test_at_most_parallel_statements_are_under_way(parallel: int) -> None:
    store = Store()
    batch = Batcher(store.send, max_size=1, parallel=parallel)
    tasks = ask(batch, *range(6))
    for _ in range(parallel):
        await store.begun.acquire()
    store.let(6)
    assert await asyncio.gather(*tasks) == [i * 2 for i in range(6)]
    assert store.most_under_way == parallel


async def test_a_cancelled_caller_takes_nothing_with_it() -> None:
    store = Store()
    batch = Batcher(store.send)
    earlier = ask(batch, 1)
    await store.begun.acquire()
    under_way, waiting = earlier[0], ask(batch, 2, 3)
    await asyncio.sleep(0)
    under_way.cancel()
    waiting[0].cancel()
    await asyncio.gather(under_way, waiting[0], return_exceptions=True)
    store.let(2)
    assert await waiting[1] == 6
    assert store.batches == [[1], [2, 3]]  # sent all the same: only the answers had no reader
    assert under_way.cancelled()
    assert waiting[0].cancelled()


async def test_an_error_goes_to_every_item_and_the_next_batch_is_fine() -> None:
    calls = 0

    async def send(items: Sequence[int]) -> Sequence[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise DependencyUnavailableError("away")
        return items

    batch = Batcher(send)
    failed = await asyncio.gather(*(batch(i) for i in range(3)), return_exceptions=True)
    assert [type(error) for error in failed] == [DependencyUnavailableError] * 3
    assert await batch(7) == 7


async def test_a_poisoned_item_fails_alone() -> None:
    store = Store()
    store.let(1000)
    batch = Batcher(store.send)
    answers = await asyncio.gather(*(batch(i) for i in [1, -2, 3, 4, -5, 6, 7]), return_exceptions=True)
    assert [a if isinstance(a, int) else str(a).split()[0] for a in answers] == [2, "-2", 6, 8, "-5", 12, 14]
    assert store.under_way == 0


async def test_a_sender_that_ends_among_poisoned_items_leaves_nobody_waiting() -> None:
    store = Store()
    batch = Batcher(store.send, max_size=4)
    first = ask(batch, 1)
    await store.begun.acquire()
    tasks = ask(batch, 2, -1, 3, 4)
    store.let(2)  # the first batch, and the whole of the second one
    for _ in ("the whole", "its first half"):
        await store.begun.acquire()
    (sender,) = batch._senders
    sender.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait([*first, *tasks])
    assert all(task.cancelled() for task in tasks)


async def test_500_items_with_one_poisoned_cost_few_statements() -> None:
    store = Store()
    store.let(1000)
    batch = Batcher(store.send)
    answers = await asyncio.gather(*(batch(i or -1) for i in range(500)), return_exceptions=True)
    assert sum(isinstance(answer, InvalidInputError) for answer in answers) == 1
    assert len(store.batches) <= 2 * 10


async def test_a_sender_that_answers_too_little_is_told_to_all() -> None:
    async def send(items: Sequence[int]) -> Sequence[int]:
        return items[:1]

    batch = Batcher(send, name="broken")
    answers = await asyncio.gather(*(batch(i) for i in range(2)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["broken: 1 results for 2 items"] * 2


async def test_result_without_a_caller_is_reported_for_any_moment_of_cancellation() -> None:
    store, missed = Store(), list[tuple[int, int]]()
    batch = Batcher(store.send, unclaimed=lambda item, result: missed.append((item, result)))
    early, late, stays = ask(batch, 1, 2, 3)
    await store.begun.acquire()
    early.cancel()
    await asyncio.sleep(0)
    late.get_loop().call_soon(store.let)
    while not missed:  # the answers are being handed out in this turn of the loop
        await asyncio.sleep(0)
    assert missed == [(1, 2)]
    late.cancel()  # his answer is there, and he has not been given the turn to take it
    with pytest.raises(asyncio.CancelledError):
        await late
    assert missed == [(1, 2), (2, 4)]
    assert await stays == 6


async def test_an_error_of_an_item_whose_caller_was_cancelled_is_told() -> None:
    store, missed = Store(), list[tuple[int, object]]()

    async def send(items: Sequence[int]) -> Sequence[int | Exception]:
        await store.send(items)
        raise error

    error = DependencyUnavailableError("the connection died")
    batch = Batcher(send, unclaimed=lambda item, result: missed.append((item, result)))
    cancelled, stays = ask(batch, 1, 2)
    await store.begun.acquire()
    cancelled.cancel()
    await asyncio.sleep(0)
    store.let()
    with pytest.raises(DependencyUnavailableError):
        await stays
    assert missed == [(1, error)], "it may have been done, and nobody else undoes it"


async def test_close_drains_what_was_taken_refuses_the_rest_and_leaves_no_task() -> None:
    tasks_before = asyncio.all_tasks()
    store = Store()
    batch = Batcher(store.send, max_size=2)
    tasks = ask(batch, 1, 2, 3)
    await store.begun.acquire()
    closing = asyncio.create_task(batch.close())
    await asyncio.sleep(0)
    with pytest.raises(DependencyUnavailableError, match="closed"):
        await batch(4)
    assert not closing.done()
    store.let(2)
    assert await asyncio.gather(*tasks) == [2, 4, 6]
    await closing
    assert asyncio.all_tasks() == tasks_before


async def test_an_idle_batcher_holds_no_task() -> None:
    tasks_before = asyncio.all_tasks()
    store = Store()
    store.let()
    batch = Batcher(store.send)
    await batch(1)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks_before
    await batch.close()


# ---- what nobody waits for


async def test_later_request_is_sent_after_the_posted_ones_are_done() -> None:
    """Though two batches may be under way: a store with two connections keeps no order between them."""
    store, results = Store(), []
    batch = Batcher(store.send, parallel=2)
    batch.post(1, results.append)
    await store.begun.acquire()
    later = ask(batch, 2, 3)
    await settled()
    assert store.batches == [[1]]
    store.let()
    await store.begun.acquire()
    assert (results, store.batches) == ([2], [[1], [2, 3]])
    store.let()
    assert await asyncio.gather(*later) == [4, 6]
    assert store.most_under_way == 1


async def test_post_does_not_wait_for_earlier_requests() -> None:
    store, results = Store(), []
    batch = Batcher(store.send, parallel=2)
    first = ask(batch, 1)
    await store.begun.acquire()
    batch.post(2, results.append)
    await store.begun.acquire()
    second = ask(batch, 3)
    await settled()
    assert store.batches == [[1], [2]]
    store.let(3)
    assert await asyncio.gather(*first, *second) == [2, 6]
    assert (results, store.batches) == ([4], [[1], [2], [3]])


async def test_a_sender_that_finds_something_posted_under_way_leaves_the_rest_to_its_sender() -> None:
    store, results = Store(), []
    batch = Batcher(store.send, parallel=2)
    first = ask(batch, 1)
    await store.begun.acquire()
    batch.post(2, results.append)
    await store.begun.acquire()
    last = ask(batch, 3)
    store.let()
    assert await first[0] == 2
    await settled()
    assert (results, store.batches) == ([], [[1], [2]])
    store.let(2)
    assert await last[0] == 6
    assert (results, store.batches) == ([4], [[1], [2], [3]])


async def test_callback_of_a_post_gets_failures_and_disturbs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, results = Store(), []

    def raises(_result: object) -> None:
        raise RuntimeError("who was told could not bear it")

    batch = Batcher(store.send)
    store.let(100)
    batch.post(-1, results.append)
    batch.post(1, raises)
    assert await batch(2) == 4
    assert isinstance(results[0], InvalidInputError)
    assert "could not bear it" in caplog.text
    batch.post(3, results.append)
    batch.abandon(TimeoutError("nobody answers"))
    assert isinstance(results[1], TimeoutError)
    await batch.close()
    batch.post(4, results.append)
    assert isinstance(results[2], DependencyUnavailableError)
    assert len(results) == 3


async def test_abandoned_request_is_in_flight_until_its_response() -> None:
    store = Store()
    batch = Batcher(store.send)
    assert batch.is_idle
    task = asyncio.create_task(batch(1))
    await store.begun.acquire()
    batch.abandon(TimeoutError("nobody answers"))
    with pytest.raises(TimeoutError):
        await task
    assert not batch.is_idle
    store.let(1)
    await batch.drained()
    assert batch.is_idle
