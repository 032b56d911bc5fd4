"""How a person watches something that lasts: a picture on a terminal, in a pipe a line now and then.

Words go to stderr, so that stdout holds the result alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fairlead.cli.output import Output

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table


class LiveView:
    """Shows one run for the length of a ``with`` block. What it shows is its subclass's to say."""

    line_every_s: float
    clock = ""
    """What stands before the words of an event."""

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
        """Leave one thing that happened behind as a line."""
        if self._live is None:
            self._out.say(f"{self.clock}{words}")
            return
        from rich.text import Text

        self._live.console.print(Text(self.clock, style="dim").append(Text(words, style="default not dim")))

    def show(self, at_s: float) -> None:
        """Show how it stands *at_s* seconds after the start."""
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        elif at_s >= self._next_s:
            self._next_s = at_s + self.line_every_s
            self._out.say(f"{at_s:5.1f} s  {self._line()}")

    def _picture(self) -> RenderableType:
        raise NotImplementedError

    def _line(self) -> str:
        raise NotImplementedError


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
