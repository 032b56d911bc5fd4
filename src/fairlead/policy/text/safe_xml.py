"""XML of strangers, read without what XML can do to its reader: no DTD, hence no entities, and no depth.

A document type brings entities that grow without bound or name files of this machine; no API needs one. How
large a document may be is the bound of the answer that it came in.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

DEEPEST = 200


class XmlRefused(ValueError):
    """It is no XML, or such as is not read here; the text says why, and nothing that it holds."""


def read_xml(text: str | bytes) -> Element:
    """The root of a document; names are ``{namespace}local``. Raises XmlRefused.

    >>> read_xml('<a xmlns="urn:x"><b c="1">2</b></a>').find("{urn:x}b").text
    '2'
    """
    return _Reader().read(text)


class _Reader:
    def __init__(self) -> None:
        self._builder = TreeBuilder()
        self._depth = 0
        self._parser = expat.ParserCreate(namespace_separator="}")
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._builder.data

    def read(self, text: str | bytes) -> Element:
        try:
            self._parser.Parse(text, True)
            return self._builder.close()
        except expat.ExpatError as error:
            told = expat.ErrorString(error.code)
            raise XmlRefused(f"line {error.lineno} is not well-formed ({told})") from None
        except (LookupError, ValueError) as error:
            if isinstance(error, XmlRefused):
                raise
            raise XmlRefused("its encoding is not known") from None

    def _doctype(self, *_told: object) -> None:
        raise XmlRefused("it has a document type")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise XmlRefused(f"it is deeper than {DEEPEST} elements")
        self._builder.start(_full(name), {_full(key): value for key, value in attributes.items()})

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._builder.end(_full(name))


def _full(name: str) -> str:
    return "{" + name if "}" in name else name
