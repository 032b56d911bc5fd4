"""Lines out of pieces of any size."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.call.lines import LineTooLong, lines_of


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def lines(*chunks: bytes, longest_bytes: int = 100) -> list[bytes]:
    return [line async for line in lines_of(pieces(*chunks), longest_bytes)]


async def test_a_line_may_come_in_pieces_and_the_last_one_without_an_end() -> None:
    assert await lines(b"a\nb", b"c\r", b"\n\nd") == [b"a", b"bc", b"", b"d"]
    assert await lines(b"") == []
    assert await lines(b"a\n") == [b"a"]


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"\r", b"\n")), st.integers(1, 9))
async def test_how_it_is_cut_changes_nothing(body: bytes, size: int) -> None:
    cut = [body[at : at + size] for at in range(0, len(body), size)]
    assert await lines(*cut) == (body.removesuffix(b"\n").split(b"\n") if body else [])


async def test_a_line_without_end_is_not_held() -> None:
    taken: list[bytes] = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            taken.append(b"x" * 10)
            yield taken[-1]

    with pytest.raises(LineTooLong, match="longer than 100 bytes"):
        _ = [line async for line in lines_of(endless(), 100)]
    assert len(taken) == 11
