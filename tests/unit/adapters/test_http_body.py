"""Bodies decoded piece by piece: cut anywhere they give the same, and never more than the bound (V6)."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.adapters.http.body import (
    MAX_MEMBERS,
    PIECE_BYTES,
    BodyTooLargeError,
    Decoder,
    MalformedBodyError,
)

MOST = 4 << 20


def bare(plain: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(plain) + compressor.flush()


ENCODERS = {"gzip": gzip.compress, "X-GZIP": gzip.compress, " deflate ": zlib.compress, "deflate": bare}


def decode(encoding: str, *parts: bytes, most: int = MOST) -> bytes:
    decoder = Decoder(encoding, most)
    pieces = [piece for part in parts for piece in decoder.feed(part)]
    decoder.end()
    return b"".join(pieces)


@given(st.binary(max_size=300), st.sampled_from(sorted(ENCODERS)), st.data())
def test_a_body_cut_anywhere_decodes_to_the_same(plain: bytes, encoding: str, data: st.DataObject) -> None:
    encoded = ENCODERS[encoding](plain)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=8)))
    parts = [encoded[a:b] for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    assert decode(encoding, *parts) == plain


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.integers(1, 40))
def test_members_of_gzip_follow_each_other(plains: list[bytes], step: int) -> None:
    encoded = b"".join(gzip.compress(plain) for plain in plains)
    parts = [encoded[at : at + step] for at in range(0, len(encoded), step)]
    assert decode("gzip", *parts) == b"".join(plains)


@given(st.binary(min_size=1, max_size=200), st.sampled_from(sorted(ENCODERS)), st.data())
def test_a_body_that_is_cut_off_is_never_whole(plain: bytes, encoding: str, data: st.DataObject) -> None:
    encoded = ENCODERS[encoding](plain)
    length = data.draw(st.integers(1, len(encoded) - 1))
    with pytest.raises(MalformedBodyError):
        decode(encoding, encoded[:length])


@given(st.binary(max_size=400), st.sampled_from(["gzip", "deflate"]))
def test_any_body_is_decoded_or_malformed(body: bytes, encoding: str) -> None:
    with suppress(MalformedBodyError):
        assert len(decode(encoding, body)) <= MOST


@pytest.mark.parametrize("encoding", ["", "identity", "utf-8", "none", "application/json"])
def test_a_word_that_is_no_encoding_changes_nothing(encoding: str) -> None:
    assert decode(encoding, b"as it ", b"came") == b"as it came"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip,br", "compress"])
def test_encoding_that_was_not_requested_is_refused(encoding: str) -> None:
    with pytest.raises(MalformedBodyError, match="did not accept"):
        Decoder(encoding, MOST)


def test_nothing_gives_more_than_its_bound() -> None:
    for encoding, encode in ENCODERS.items():
        assert decode(encoding, encode(bytes(1000)), most=1000) == bytes(1000)
        with pytest.raises(BodyTooLargeError):
            decode(encoding, encode(bytes(1001)), most=1000)
    assert decode("", bytes(500), bytes(500), most=1000) == bytes(1000)
    with pytest.raises(BodyTooLargeError):
        decode("", bytes(500), bytes(501), most=1000)


def test_blocks_that_give_nothing_are_bounded_too() -> None:
    nothing = zlib.compress(b"")[:2] + b"\0\0\0\xff\xff" * 1000
    with pytest.raises(BodyTooLargeError):
        decode("deflate", nothing, most=1000)


def test_members_are_counted() -> None:
    empty = gzip.compress(b"")
    assert decode("gzip", empty * MAX_MEMBERS) == b""
    for parts in ([empty * (MAX_MEMBERS + 1)], [empty] * (MAX_MEMBERS + 1)):
        with pytest.raises(MalformedBodyError, match="goes on"):
            decode("gzip", *parts)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_bytes_behind_the_end_are_refused(encoding: str) -> None:
    with pytest.raises(MalformedBodyError):
        decode(encoding, ENCODERS[encoding](b"plain"), b"more")


def test_a_bomb_comes_in_small_pieces() -> None:
    pieces = list(Decoder("gzip", MOST).feed(gzip.compress(bytes(MOST))))
    assert len(pieces) == MOST // PIECE_BYTES
    assert {len(piece) for piece in pieces} == {PIECE_BYTES}
