"""The character encoding of a body: byte-order mark, declared charset, XML declaration, else UTF-8.

Names have the meaning of the WHATWG Encoding Standard: `iso-8859-1` is windows-1252, as servers use it. Any
other name is ignored, also `utf-7` and Python's transforms (`rot13`, `hex`). Content-Type is parsed by
RFC 9110 §5.6.6, as leniently as the WHATWG MIME Sniffing Standard does.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any

_LABELS: Mapping[str, str] = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5"
    " iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e"
    " iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597"
    " iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598"
    " iso_8859-8 iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac_roman": "csmacintosh mac macintosh x-mac-roman",
    "mac_cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591"
    " iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5"
    " latin5 windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601"
    " windows-949",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}
CODECS: Mapping[str, str] = MappingProxyType(
    dict(
        chain.from_iterable(((label, codec) for label in labels.split()) for codec, labels in _LABELS.items())
    )
)
"""Python's codec for each label, in lower case."""

UTF_8 = "utf-8"
_MARKS = ((b"\xef\xbb\xbf", UTF_8), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))
_WIDE = frozenset({"utf-16-be", "utf-16-le"})
_SPACE = " \t\r\n\f"
_PARAMETER = re.compile(r';[ \t\r\n]*+([^;=]*+)(?:=(?:"((?:[^"\\]|\\.)*+)"?+[^;]*+|([^;]*+)))?+', re.DOTALL)
_QUOTED_PAIR = re.compile(r"\\(.)", re.DOTALL)
_LONGEST_TYPE = 1000
_DECLARATION = re.compile(
    rb"<\?xml[ \t\r\n][^?>]{0,200}?\bencoding[ \t\r\n]*=[ \t\r\n]*[\"']([A-Za-z0-9._:-]{1,40})"
)
_SEVERAL_BYTES = frozenset(
    {UTF_8, "gb18030", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949", "utf-16-be", "utf-16-le"}
)
"""Codecs that are not a table of 256 characters."""
_UNDEFINED = "\ufffe"
"""The mark of a byte without a character in such a table."""


def charset_of(content_type: str | None) -> str | None:
    """Return Python's codec for the charset in *content_type*; None for an unknown or missing one.

    >>> charset_of('text/csv; header=present; charset="ISO-8859-1"')
    'cp1252'
    """
    if content_type is None or len(content_type) > _LONGEST_TYPE:
        return None
    for match in _PARAMETER.finditer(content_type):
        if match[1].strip(_SPACE).lower() == "charset":
            value = match[3] if match[2] is None else _QUOTED_PAIR.sub(r"\1", match[2])
            return _codec_of(value or "")
    return None


def declared_codec(headers: Mapping[str, Sequence[str]]) -> str | None:
    """Return the codec of the last Content-Type in *headers*, which have names in lower case."""
    values = headers.get("content-type")
    return charset_of(values[-1]) if values else None


def codec_of(body: bytes, declared: str | None) -> tuple[str, int]:
    """Return the codec of *body* and the length of its byte-order mark.

    Args:
        body: The bytes.
        declared: The codec of its Content-Type, or None.
    """
    for mark, codec in _MARKS:
        if body.startswith(mark):
            return codec, len(mark)
    if declared is None and body.startswith(b"<?xml"):
        declaration = _DECLARATION.match(body)
        declared = _codec_of(declaration[1].decode("ascii")) if declaration else None
        declared = None if declared in _WIDE else declared  # a declaration in ASCII contradicts it
    return declared or UTF_8, 0


def text_of(body: bytes, declared: str | None) -> str:
    """Return *body* as text, with U+FFFD in place of invalid bytes."""
    codec, mark = codec_of(body, declared)
    return decoded(memoryview(body)[mark:], codec)


def strict_text_of(body: bytes, declared: str | None) -> str:
    """Return *body* as text; raise UnicodeDecodeError for invalid bytes."""
    codec, mark = codec_of(body, declared)
    return decoded(memoryview(body)[mark:], codec, "strict")


def decoded(data: bytes | memoryview, codec: str, errors: str = "replace") -> str:
    """Return *data* as text. *errors* is `replace` or `strict`, which are implemented in C.

    An error handler in Python would take 8 us for each invalid byte, 8 s for a MiB of them.
    """
    if codec in _SEVERAL_BYTES:
        return str(data, codec, errors)
    return codecs.charmap_decode(data, errors, _table(codec))[0]


@cache
def _table(codec: str) -> str:
    """Return the character of each byte; bytes from 0x80 to 0x9F that Python lacks are C1 controls."""
    plain = [bytes((byte,)).decode(codec, "ignore") for byte in range(256)]
    instead = (chr(byte) if 0x80 <= byte <= 0x9F else _UNDEFINED for byte in range(256))
    return "".join(character or other for character, other in zip(plain, instead, strict=True))


class _ByTable(codecs.IncrementalDecoder):
    """An incremental decoder that uses a table."""

    def __init__(self, codec: str) -> None:
        super().__init__()
        self._codec = codec

    def decode(self, data: Any, final: bool = False) -> str:
        """Return *data* as text."""
        return decoded(data, self._codec)


async def as_utf_8(chunks: AsyncIterable[bytes], declared: str | None) -> AsyncIterator[bytes]:
    """Yield *chunks* in UTF-8 without a byte-order mark, each with the text of at most one of them."""
    decoder: codecs.IncrementalDecoder | None = None
    start, has_started = b"", False
    async for chunk in chunks:
        if not has_started:
            start += chunk  # a mark may be split between chunks
            if any(mark != start and mark.startswith(start) for mark, _codec in _MARKS):
                continue
            piece, decoder = _begin(start, declared)
            has_started = True
        else:
            piece = chunk
        if text := piece if decoder is None else decoder.decode(piece).encode():
            yield text
    rest, decoder = (b"", decoder) if has_started else _begin(start, declared)
    if text := rest if decoder is None else decoder.decode(rest, final=True).encode():
        yield text


def _begin(start: bytes, declared: str | None) -> tuple[bytes, codecs.IncrementalDecoder | None]:
    """Return *start* without its mark, and its decoder; None if it is UTF-8 already."""
    codec, mark = codec_of(start, declared)
    if codec not in _SEVERAL_BYTES:
        return start[mark:], _ByTable(codec)
    return start[mark:], None if codec == UTF_8 else codecs.getincrementaldecoder(codec)("replace")


def _codec_of(label: str) -> str | None:
    return CODECS.get(label.strip(_SPACE).lower())
