"""Small pictures of figures over time, in characters: for terminals, logs and tickets."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"


def chart(values: Sequence[float | None], *, width: int, height: int, least_top: float = 1.0) -> list[str]:
    """Return the lines of a bar chart with its scale at the left; *values* are scaled to *width* bars.

    >>> for line in chart([0, 2, 4], width=3, height=2): print(line)
       4 |  █
         | ██
       0 +---
    """
    bars = _columns(values, width)
    top = max([least_top, *(bar for bar in bars if bar is not None)])
    lines = []
    for row in range(height, 0, -1):
        cells = "".join(_cell(bar, top, row, height) for bar in bars)
        lines.append(f"{_number(top) if row == height else '':>4} |{cells}")
    return [*lines, f"{'0':>4} +{'-' * width}"]


def _columns(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return the largest value of each column."""
    columns: list[float | None] = []
    for column in range(width):
        first = column * len(values) // width
        last = max(first + 1, (column + 1) * len(values) // width)
        cells = [value for value in values[first:last] if value is not None]
        columns.append(max(cells) if cells else None)
    return columns


def _cell(bar: float | None, top: float, row: int, height: int) -> str:
    if bar is None:
        return " "
    eighths = round(bar / top * height * 8) - (row - 1) * 8
    return BLOCKS[max(0, min(8, eighths))]


def _number(value: float) -> str:
    """Return *value* as a short label for the scale, from 10,000 on in k or M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 10 * size:
            return f"{value / size:.0f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
