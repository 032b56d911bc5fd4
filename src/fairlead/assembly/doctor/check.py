"""The result of one check of `fairlead doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    detail: str
    hint: str | None = None
