"""The live view of a long run: a picture on a terminal, a line now and then in a pipe.

All of it goes to stderr, so that stdout holds only the result.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fairlead.cli.kit.output import Output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table


class LiveView(ABC):
    """A view of one run, shown for the length of a ``with`` block. Subclasses define its contents."""

    line_every_s: float
    clock = ""
    """The prefix of an event's line."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._live = None if out.as_json or out.quiet else _live()
        self._next_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, words: str) -> None:
        """Print one event as a line."""
        if self._live is None:
            self._out.say(f"{self.clock}{words}")
            return
        from rich.text import Text

        self._live.console.print(Text(self.clock, style="dim").append(Text(words, style="default not dim")))

    def show(self, elapsed_s: float) -> None:
        """Show the state of the run *elapsed_s* seconds after its start."""
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        elif elapsed_s >= self._next_s:
            self._next_s = elapsed_s + self.line_every_s
            self._out.say(f"{elapsed_s:5.1f} s  {self._line()}")

    @abstractmethod
    def _picture(self) -> RenderableType:
        """Return the picture of the current state, for a terminal."""

    @abstractmethod
    def _line(self) -> str:
        """Return one line on the current state, for a pipe."""


def _live() -> Live | None:
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    return Live(console=console, auto_refresh=False, transient=True)


def figures_table(title: str, rows: Iterable[tuple[str, object]]) -> Table:
    """Return a small table of names and figures."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name.replace("_", " "), str(value))
    return table
