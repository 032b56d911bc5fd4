"""The base of everything that comes from a file or over the control API: frozen, unknown keys refused."""

from __future__ import annotations

from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fairlead.errors import InvalidConfigError

T = TypeVar("T")


class Model(BaseModel):
    """A frozen value that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, data: object, what: str) -> Self:
        """*data* as this model, or InvalidConfigError that says what in *what* is wrong."""
        return parse(TypeAdapter(cls), data, what)


def parse(adapter: TypeAdapter[T], data: object, what: str) -> T:
    """*data* through *adapter*; a failure names the place and the reason, never the value."""
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "value"
        raise InvalidConfigError(
            f"test server: {what} cannot be used: {where}: {first['msg']}",
            hint="correct it; the fields are listed in issuer.config, issuer.quirks and api.switches",
        ) from None
