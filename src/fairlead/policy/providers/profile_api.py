"""Where a vendor's APIs are, and how they hand out lists: the tables ``apis.NAME`` of a profile (C1, C8)."""

from __future__ import annotations

from pydantic import Field

from fairlead.policy.providers.pagination import Pages
from fairlead.policy.providers.profile_parts import Table, Text


class Api(Table):
    """One of a vendor's APIs."""

    url: Text = Field(description="What the addresses of its calls begin with. ``{name}``: a parameter.")
    pages: Pages | None = Field(
        default=None, description="How it hands out lists. Default: a call that wants pages says how."
    )
