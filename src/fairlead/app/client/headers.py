"""The headers of a response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


class Headers(Mapping[str, str]):
    """Header values by name in any case; several lines of one name are joined by a comma.

    >>> headers = Headers({"content-type": ("text/html",), "vary": ("accept", "origin")})
    >>> headers["Content-Type"], headers.get("VARY"), list(headers)
    ('text/html', 'accept, origin', ['content-type', 'vary'])
    """

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = {name.lower(): ", ".join(lines) for name, lines in values.items()}

    def __repr__(self) -> str:
        return f"Headers({', '.join(self._values)})"  # no values: cookies may be among them

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
