"""What a job calls its lists: two that ask for something else never share what was noted."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.app.client.client import Client
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.ports import ConnectionKey
from fairlead.policy.providers.pagination import OffsetPagination
from tests.support.engine import a_job


async def name_of(path: str, **options: Any) -> str:
    nothing: Any = None
    client = Client(ConnectionKey("acme", "shopify"), nothing, nothing, nothing)
    running = current_job.set(JobContext(a_job("sync"), lambda: 60.0))
    try:
        bookmark = client.paginate(path, pagination="requeue_job", **options)._bookmark()
    finally:
        current_job.reset(running)
    assert bookmark is not None
    return bookmark.name


@pytest.mark.parametrize(
    "other",
    [
        {"api": "rest"},
        {"items": "data"},
        {"pages": {"kind": "offset"}},
        {"params": {"limit": 2}},
        {"query": "{ a }"},
        {"variables": {"a": 1}},
    ],
)
async def test_lists_that_differ_in_anything_have_names_of_their_own(other: dict[str, Any]) -> None:
    assert await name_of("/items", **other) == await name_of("/items", **other)
    assert await name_of("/items", **other) != await name_of("/items")


async def test_a_way_is_the_same_in_whatever_order_it_is_written() -> None:
    first, two = {"kind": "offset", "param": "skip"}, {"param": "skip", "kind": "offset"}
    assert await name_of("/items", pages=first) == await name_of("/items", pages=two)
    assert await name_of("/items", pages=OffsetPagination()) != await name_of(
        "/items", pages=OffsetPagination(param="skip")
    )
