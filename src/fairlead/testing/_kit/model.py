"""The base of values that come from a file or over the control API."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fairlead.errors import InvalidConfigError


class Model(BaseModel):
    """A frozen value that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, data: object, source: str) -> Self:
        """Return *data* as this model.

        Args:
            source: The origin of the data in the error message.

        Raises:
            InvalidConfigError: Names the wrong field and the reason, never the value.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "value"
            raise InvalidConfigError(
                f"test server: {source} cannot be used: {field}: {first['msg']}",
                hint="correct it; the fields are listed in issuer.config, issuer.quirks and api.switches",
            ) from None
