"""An answer that is taken as it comes: `Client.stream`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cached_property

from fairlead.app.client.headers import Headers
from fairlead.engine.calls.line_splitter import LONGEST_LINE_BYTES, LineTooLong, lines_of
from fairlead.engine.ports import HttpStream
from fairlead.errors import ResponseDecodingError
from fairlead.policy.reasons.call_reasons import LINE_TOO_LONG
from fairlead.policy.text.charset import as_utf_8, declared_codec

STREAM_BYTES = 64 << 30
"""The most of an answer's body that is streamed unless a call says otherwise."""


class StreamedResponse:
    """The head of an answer, and its body piece by piece: ``async for chunk in response``. Once.

    Nothing of it is kept here. Whoever leaves its block early drops the connection.
    """

    def __init__(self, came: HttpStream, *, tenant: str, provider: str) -> None:
        self._came = came
        self._tenant, self._provider = tenant, provider

    def __repr__(self) -> str:
        return f"<StreamedResponse [{self.status_code}]>"

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        return self._came.status

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Header values by name, in whatever case; those of several lines joined by a comma."""
        return Headers(self._came.headers)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._came.__aiter__()

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The same under the name that httpx has for it: pieces of the body, decoded, none empty."""
        return self._came.__aiter__()

    async def aiter_lines(self, *, longest_bytes: int = LONGEST_LINE_BYTES) -> AsyncIterator[str]:
        """Yield the body line by line, without line ends, by the charset of its Content-Type.

        The default charset is UTF-8; invalid bytes become U+FFFD. Only LF or CR LF ends a line.

        Args:
            longest_bytes: The longest line, and the most that is held in memory. Default 16 MiB.

        Raises:
            ResponseDecodingError: A line is longer than that.
        """
        try:
            chunks = as_utf_8(self._came, declared_codec(self._came.headers))
            async for line in lines_of(chunks, longest_bytes):
                yield line.decode("utf-8", "replace")
        except LineTooLong as error:
            hint = "give a larger `longest_bytes`, or take the body in pieces"
            raise ResponseDecodingError(
                str(error),
                tenant=self._tenant,
                provider=self._provider,
                hint=hint,
                reason=LINE_TOO_LONG.code,
            ) from None

    async def aread(self) -> bytes:
        """The whole body, up to the `max_body_bytes` of its call."""
        return b"".join([chunk async for chunk in self._came])
