"""Bodies are read in the charset that they tell, by the names of the WHATWG, else as UTF-8."""

from __future__ import annotations

import asyncio
import codecs
import json
import sys
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.app.client.response import Response
from fairlead.app.client.streaming import StreamedResponse
from fairlead.engine.calls.request import CallResult
from fairlead.engine.ports import HttpResponse
from fairlead.policy.calls.classify.body import LARGEST_JUDGED, LazyResponse, parse_response
from fairlead.policy.calls.classify.verdict import Result, Step, Verdict
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.text.charset import CODECS, as_utf_8, charset_of, strict_text_of, text_of
from fairlead.policy.tokens.outcome import Granted, Rejected, classify_token_response
from fairlead.policy.tokens.parse import parse_token_response

CSV = "Straße;Größe\r\nMünchen;5 €\r\n"


def response(body: bytes, *content_type: str) -> Response:
    headers = {"content-type": content_type} if content_type else {}
    reply = LazyResponse(200, headers, body)
    call_result = CallResult(
        HttpResponse(200, headers, body, 0.0), reply, Verdict(Result.OK, "ok", Step.STATUS, "ok"), 1, 0.0
    )
    return Response(call_result, tenant="acme", provider="demo")


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (CSV.encode("cp1252"), "text/csv; charset=ISO-8859-1", CSV),
        (CSV.encode("cp1252"), "text/csv;header=present ; Charset=\"iso\\-8859-1\" ", CSV),
        (CSV.encode("utf-16-le"), "text/csv; charset=utf-16", CSV),
        (CSV.encode("utf-16"), "text/csv", CSV),
        (CSV.encode("utf-8-sig"), "text/csv; charset=iso-8859-1", CSV),
        (CSV.encode(), "text/csv", CSV),
        (CSV.encode(), "text/csv; charset=unknown", CSV),
        ("日本".encode("shift_jis"), "text/csv; charset=Shift_JIS", "日本"),
        (b"1 + 1 +AC0- 2", "text/csv; charset=utf-7", "1 + 1 +AC0- 2"),
        (b"uryyb", "text/csv; charset=rot13", "uryyb"),
        (b"6869", "text/csv; charset=hex", "6869"),
        (b"a\x81b", "text/csv; charset=windows-1252", "a\x81b"),
        (b"a\xffb", "text/csv", "a\ufffdb"),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>'.encode("latin-1"), "text/xml", None),
    ],
)  # fmt: skip
async def test_csv_in_iso_8859_1_and_other_text_is_read_in_the_charset_that_it_tells(
    body: bytes, content_type: str, text: str | None
) -> None:
    expected = body.decode("latin-1") if text is None else text
    assert response(body, content_type).text == expected
    for size in (1, 2, 3, 7, 1000):
        stream = Stream({"content-type": (content_type,)}, body, size)
        lines = [line async for line in StreamedResponse(stream, tenant="a", provider="d").aiter_lines()]
        if text is not None:
            assert lines == text.removesuffix("\r\n").replace("\r\n", "\n").split("\n")


@pytest.mark.parametrize("mark", [b"", b"\xff\xfe"])
def test_json_in_utf_16_is_read_and_halves_of_its_characters_are_none(mark: bytes) -> None:
    """In bytes json keeps each half, which takes 0.5 s for 1 MiB of them."""
    assert parse_response(400, {}, mark + '{"a": "ж"}'.encode("utf-16-le")).body == {"a": "ж"}
    half = mark + '{"a": "\ud800"}'.encode("utf-16-le", "surrogatepass")
    assert parse_response(400, {}, half).body is None


@pytest.mark.parametrize("declared", [None, *sorted(set(CODECS.values()))])
def test_bytes_that_are_no_text_cost_no_call_each(declared: str | None) -> None:
    """1 MiB of them would stop the event loop for 8 s."""
    calls = 0

    def count(*_event: object) -> None:
        nonlocal calls
        calls += 1

    text_of(b"\x81\xff\x80", declared)  # what is imported and made once
    sys.setprofile(count)
    try:
        for byte in (b"\x81", b"\xff", b"\x80"):
            text_of(byte * 1000, declared)
    finally:
        sys.setprofile(None)
    assert calls < 100


class Stream:
    status = 200

    def __init__(self, headers: dict[str, tuple[str, ...]], body: bytes, size: int) -> None:
        self.headers = headers
        self._pieces = [body[at : at + size] for at in range(0, len(body), size)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def test_json_that_says_its_charset_is_read_in_it() -> None:
    value = {"stadt": "München"}
    body = json.dumps(value, ensure_ascii=False).encode("latin-1")
    assert response(body, "application/json; charset=iso-8859-1").json() == value
    assert parse_response(400, {"Content-Type": "application/json; charset=latin1"}, body).body == value
    assert (
        response(json.dumps(value).encode("utf-16-be"), "application/json; charset=utf-16be").json() == value
    )
    assert parse_response(400, {}, body).text == '{"stadt": "M\ufffdnchen"}'


def test_xml_is_read_in_the_charset_of_its_content_type_before_that_of_its_declaration() -> None:
    body = '<?xml version="1.0" encoding="utf-8"?><a>é</a>'.encode("latin-1")
    assert response(body, "text/xml; charset=iso-8859-1").xml.text == "é"


def test_large_answer_is_judged_in_the_charset_that_it_tells() -> None:
    padding = "x" * LARGEST_JUDGED
    body = f'{{"errors": [{{"message": "größer"}}], "data": "{padding}"}}'.encode("latin-1")
    judged = LazyResponse(200, {"content-type": ("application/json; charset=iso-8859-1",)}, body).excerpt()
    assert judged.body["errors"][0]["message"] == "größer"  # type: ignore[index]


def test_token_answer_is_read_in_the_charset_that_it_tells() -> None:
    profile = load_profiles()["xero"]
    headers = {"Content-Type": ["application/json;charset=ISO-8859-1"]}
    raw = b'{"access_token": "at-1", "name": "Caf\xe9", "expires_in": 600}'
    outcome = classify_token_response(profile, parse_token_response(200, headers, raw))
    assert isinstance(outcome, Granted)
    assert json.loads(outcome.other.reveal())["name"] == "Café"
    refused = b'{"error": "invalid_grant", "error_description": "expir\xe9"}'
    assert isinstance(classify_token_response(profile, parse_token_response(400, headers, refused)), Rejected)


def test_every_label_is_a_codec_of_text_and_none_is_a_transform() -> None:
    assert len(CODECS) > 200
    for label, codec in CODECS.items():
        assert label == label.strip().lower()
        assert codecs.lookup(codec)._is_text_encoding  # type: ignore[attr-defined]
        assert "utf-7" not in (label, codec)
        assert charset_of(f"text/plain; charset={label.upper()}") == codec


# ---- the grammar of RFC 9110 §5.6.6 and §8.3.1

TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
token = st.text(TOKEN, min_size=1, max_size=8)
ows = st.text(" \t", max_size=2)
quotable = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\t"), max_size=10)


def quoted(text: str, all_pairs: bool) -> str:
    return '"' + "".join(f"\\{sign}" if all_pairs or sign in '"\\' else sign for sign in text) + '"'


value = token | st.builds(quoted, quotable, st.booleans())
parameter = st.tuples(ows, ows, token.filter(lambda name: name.lower() != "charset"), value).map(
    lambda parts: f"{parts[0]};{parts[1]}{parts[2]}={parts[3]}"
)


@given(
    token, token, st.lists(parameter, max_size=3), st.sampled_from(sorted(CODECS)), st.sampled_from("tqp"),
    st.lists(parameter, max_size=3), ows,
)  # fmt: skip
def test_charset_of_every_content_type_of_the_grammar_is_found(
    kind: str, sub: str, params_before: list[str], label: str, form: str, params_after: list[str], blank: str
) -> None:
    written = label if form == "t" and ":" not in label else quoted(label, form == "p")
    content_type = f"{kind}/{sub}{''.join(params_before)};{blank}CharSet={written}{''.join(params_after)}"
    assert charset_of(content_type) == CODECS[label]
    assert charset_of(f"{kind}/{sub}{''.join(params_before)}") is None


@given(st.text(max_size=60) | st.text('charset=";,\\ =utf-8', max_size=40))
def test_no_content_type_makes_reading_it_raise(content_type: str) -> None:
    assert charset_of(content_type) in {None, *CODECS.values()}


@given(st.binary(max_size=60), st.sampled_from([None, *sorted(set(CODECS.values()))]), st.integers(1, 9))
def test_no_bytes_make_decoding_raise_and_pieces_give_the_same_text(
    body: bytes, declared: str | None, size: int
) -> None:
    complete_text = text_of(body, declared)
    stream = Stream({}, body, size)

    async def joined() -> bytes:
        return b"".join([piece async for piece in as_utf_8(stream, declared)])

    pieces = asyncio.run(joined())
    if not body.startswith(b"<?xml"):
        assert pieces.decode("utf-8", "replace") == complete_text


@given(st.text(max_size=40), st.sampled_from(sorted(set(CODECS.values()))))
def test_text_of_any_charset_comes_back(text: str, codec: str) -> None:
    try:
        body = text.encode(codec)
    except UnicodeEncodeError:
        return
    if body[:2] not in (b"\xff\xfe", b"\xfe\xff") and not body.startswith(b"\xef\xbb\xbf"):
        assert strict_text_of(body, codec) == body.decode(codec)
