"""The APIs of a provider: the tables ``apis.NAME`` of a profile. Spec: C1, C8."""

from __future__ import annotations

from pydantic import Field

from fairlead.policy.providers.pagination import PaginationConfig
from fairlead.policy.providers.profile_parts import ConfigTable, Text


class ApiConfig(ConfigTable):
    """The base URL and the pagination of one of a provider's APIs."""

    url: Text = Field(description="Base URL of its calls. ``{name}`` stands for a parameter.")
    pages: PaginationConfig | None = Field(
        default=None, description="How it paginates lists. Default: each call for pages must say."
    )
