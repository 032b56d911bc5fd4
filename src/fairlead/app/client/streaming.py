"""A response that is read as it arrives: `Client.stream`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cached_property

from fairlead.app.client.headers import Headers
from fairlead.engine.calls.line_splitter import MAX_LINE_BYTES, LineTooLongError, split_lines
from fairlead.engine.ports import HttpStream
from fairlead.errors import ResponseDecodingError
from fairlead.policy.reasons.call_reasons import LINE_TOO_LONG
from fairlead.policy.text.charset import as_utf_8, declared_codec

STREAM_BYTES = 64 << 30
"""The largest body that is streamed, unless a call sets `max_body_bytes`."""


class StreamedResponse:
    """The head of a response, and its body in chunks: ``async for chunk in response``. Read it once.

    Nothing is stored. Leaving the block early drops the connection.
    """

    def __init__(self, stream: HttpStream, *, tenant: str, provider: str) -> None:
        self._stream = stream
        self._tenant, self._provider = tenant, provider

    def __repr__(self) -> str:
        return f"<StreamedResponse [{self.status_code}]>"

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        return self._stream.status

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Header values by name in any case; several lines of one name are joined by a comma."""
        return Headers(self._stream.headers)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the decoded body in chunks, none of them empty, as `httpx.Response.aiter_bytes` does."""
        return self._stream.__aiter__()

    async def aiter_lines(self, *, longest_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[str]:
        """Yield the body line by line, without line ends, by the charset of its Content-Type.

        The default charset is UTF-8; invalid bytes become U+FFFD. Only LF or CR LF ends a line.

        Args:
            longest_bytes: The longest line, and the most that is held in memory. Default 16 MiB.

        Raises:
            ResponseDecodingError: A line is longer than that.
        """
        try:
            chunks = as_utf_8(self._stream, declared_codec(self._stream.headers))
            async for line in split_lines(chunks, longest_bytes):
                yield line.decode("utf-8", "replace")
        except LineTooLongError as error:
            hint = "give a larger `longest_bytes`, or read the body in chunks"
            raise ResponseDecodingError(
                str(error),
                tenant=self._tenant,
                provider=self._provider,
                hint=hint,
                reason=LINE_TOO_LONG.code,
            ) from None

    async def aread(self) -> bytes:
        """Return the whole body, up to the `max_body_bytes` of its call."""
        return b"".join([chunk async for chunk in self._stream])
