"""The parameters of a handler as the schema of its args, checked when jobs are stored and when they run.

The args of a job are a JSON object. A handler ``(ctx, order_id: int, note: str = "")`` takes one with these
keys; ``(ctx, order: Order)`` with one model or dataclass takes its fields; ``(ctx)`` alone takes anything and
reads ``ctx.args``. Values pass through pydantic both ways, so a ``datetime`` arrives as one. What is stored
is read back at once, so args that no run could read are refused by enqueue.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, NoReturn, Protocol, TypeVar, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticUserError

from fairlead.app.json_form import json_form
from fairlead.engine.jobs.handler import JobContext
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.text.redact import redact

RUN_ARGS = ("schedule", "run_at", "coalesced")
"""What a schedule adds to its jobs' args; a handler need not take it."""

_MOST_SHOWN = 3
_NUMBERS_STAY = ConfigDict(ser_json_inf_nan="constants")
"""NaN stays NaN where it is dumped, so that it is refused and not stored as null."""

Args = Mapping[str, Any]
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Shape(Protocol):
    """A conversion between the stored args of a kind and the parameters of its handler."""

    @property
    def names(self) -> frozenset[str]:
        """The names of args that the handler declares."""
        ...

    def dump_call(self, args: tuple[Any, ...], kwargs: Args) -> dict[str, Any]:
        """Return what to store for a call.

        Raises:
            ValidationError, TypeError, ValueError: It does not fit.
        """
        ...

    def dump(self, args: Args) -> dict[str, Any]:
        """Return what to store for args given by name."""
        ...

    def load(self, args: Args) -> Call:
        """Return the call for stored args. Raise ValidationError if they do not fit."""
        ...


class Signature:
    """The args of one kind.

    Raises:
        InvalidConfigError: The handler's parameters cannot be used.
    """

    def __init__(self, kind: str, function: Callable[..., object]) -> None:
        self._kind = kind
        self._shape = _shape(kind, function)
        self.names = self._shape.names
        """The names of args that the handler declares; it may accept others, too."""

    def of_call(self, args: tuple[Any, ...], kwargs: Args, *, tenant: str | None = None) -> dict[str, Any]:
        """Return the args of a call by name. Raise InvalidInputError if they do not fit."""
        return self._checked(lambda: self._shape.dump_call(args, kwargs), tenant)

    def of_args(self, args: Args, *, tenant: str | None = None) -> dict[str, Any]:
        """Return *args* as they are stored, after reading them back.

        Raises:
            InvalidInputError: They do not fit.
        """

        def dump() -> dict[str, Any]:
            stored = self._shape.dump(args)
            self._shape.load(stored)
            return stored

        return self._checked(dump, tenant)

    def call_for(self, args: Args, *, tenant: str) -> Call:
        """Return what follows the context in the call of a run with stored *args*.

        Raises:
            InvalidInputError: They do not fit.
        """
        try:
            return self._shape.load(args)
        except ValidationError as error:
            hint = "fix what enqueues it, then redrive; `fairlead dlq show` shows the args"
            self._refuse(_problem_of(error), tenant, hint)

    def _checked(self, dump: Callable[[], dict[str, Any]], tenant: str | None) -> dict[str, Any]:
        try:
            return dump()
        except ValidationError as error:
            self._refuse(_problem_of(error), tenant)
        except (TypeError, ValueError) as error:  # parameters that do not bind, values that JSON cannot say
            self._refuse(_without_names(str(error)), tenant)

    def _refuse(self, problem: str, tenant: str | None, hint: str | None = None) -> NoReturn:
        message = f"these args do not fit kind {self._kind!r}: {problem}"
        raise InvalidInputError(message, tenant=tenant, hint=hint) from None


# ---- shapes ------------------------------------------------------------------------------------


class _Untyped:
    """A handler that takes the context alone: any args, read from it."""

    names: frozenset[str] = frozenset()

    def dump_call(self, args: tuple[Any, ...], kwargs: Args) -> dict[str, Any]:
        if args:
            raise TypeError("its handler has no parameters, so give args by name")
        return dict(kwargs)

    def dump(self, args: Args) -> dict[str, Any]:
        return dict(args)

    def load(self, args: Args) -> Call:
        return (), {}


class _OneModel:
    """A handler of one model or dataclass, with its fields as the args."""

    def __init__(self, parameter: inspect.Parameter, model: Any) -> None:
        self._name = parameter.name
        self._parameters = inspect.Signature([parameter])
        self._model = TypeAdapter(model)
        # dumps a tuple of one model, because an adapter of a model alone takes no config
        self._tuple_adapter = TypeAdapter(tuple[model], config=_NUMBERS_STAY)
        self.names = frozenset((parameter.name, *_arg_names(model)))

    def dump_call(self, args: tuple[Any, ...], kwargs: Args) -> dict[str, Any]:
        is_model = bool(args) or set(kwargs) == {self._name}
        return self.dump(self._parameters.bind(*args, **kwargs).arguments[self._name] if is_model else kwargs)

    def dump(self, args: Any) -> dict[str, Any]:
        model = self._model.validate_python(dict(args) if isinstance(args, Mapping) else args)
        stored: dict[str, Any] = json_form(
            lambda mode: self._tuple_adapter.dump_python((model,), mode=mode, by_alias=True)[0]
        )
        return stored

    def load(self, args: Args) -> Call:
        return (self._model.validate_python(dict(args)),), {}


class _Named:
    """A handler of several parameters, or of plain ones: each is a key of the args."""

    def __init__(self, kind: str, parameters: list[inspect.Parameter], hints: Args) -> None:
        open_ended = [item for item in parameters if item.kind is item.VAR_KEYWORD]
        named = [item for item in parameters if item not in open_ended]
        self._parameters = inspect.Signature(parameters)
        self._rest = open_ended[0].name if open_ended else None
        self.names = frozenset(parameter.name for parameter in named)
        # Fields have names of their own: a parameter may be called what no field of a model may be.
        self._names = {f"p{index}": parameter.name for index, parameter in enumerate(named)}
        fields: dict[str, Any] = {
            field: (
                hints.get(parameter.name, Any),
                Field(... if parameter.default is parameter.empty else None, alias=parameter.name),
            )
            for field, parameter in zip(self._names, named, strict=True)
        }
        config = ConfigDict(**_NUMBERS_STAY, extra="allow" if open_ended else "forbid")
        self._model: type[BaseModel] = create_model(f"args of {kind}", __config__=config, **fields)

    def dump_call(self, args: tuple[Any, ...], kwargs: Args) -> dict[str, Any]:
        arguments = dict(self._parameters.bind(*args, **kwargs).arguments)
        rest: dict[str, Any] = arguments.pop(self._rest, {}) if self._rest else {}
        return self.dump(rest | arguments)

    def dump(self, args: Args) -> dict[str, Any]:
        read = self._model.model_validate(dict(args))
        stored: dict[str, Any] = json_form(
            lambda mode: read.model_dump(mode=mode, by_alias=True, exclude_unset=True)
        )
        return stored

    def load(self, args: Args) -> Call:
        declared = {name: value for name, value in args.items() if not self._is_left_out(name)}
        read = self._model.model_validate(declared)
        values = {
            self._names[field]: getattr(read, field) for field in read.model_fields_set & self._names.keys()
        }
        return (), {**(read.model_extra or {}), **values}

    def _is_left_out(self, name: str) -> bool:
        return self._rest is None and name in RUN_ARGS and name not in self._names.values()


# ---- reading a function ------------------------------------------------------------------------


def _shape(kind: str, function: Callable[..., object]) -> Shape:
    try:
        context, *parameters = inspect.signature(function).parameters.values()
        if context.kind not in (context.POSITIONAL_ONLY, context.POSITIONAL_OR_KEYWORD):
            raise ValueError(context.name)
    except ValueError:
        hint = "its first parameter is the context: async def handler(ctx, ...)"
        raise InvalidConfigError(f"the handler of kind {kind!r} takes no context", hint=hint) from None
    except NameError as error:
        raise _unusable(kind, error) from None
    _check_context(kind, function, context)
    for parameter in parameters:
        _check_parameter(kind, parameter)
    if not parameters:
        return _Untyped()
    try:
        hints = _hints(function, [parameter.name for parameter in parameters])
        if len(parameters) == 1 and _is_model(hints.get(parameters[0].name), parameters[0]):
            model = hints[parameters[0].name]
            _check_no_secrets(kind, _fields(model))
            return _OneModel(parameters[0], model)
        _check_no_secrets(kind, hints)
        return _Named(kind, parameters, hints)
    except (NameError, TypeError, PydanticUserError) as error:
        raise _unusable(kind, error) from None


CONTEXT_NAMES = frozenset({"ctx", "context", "job", "c", "_"})
"""What a first parameter without a type may be called, with or without an underscore before it."""


def _check_context(kind: str, function: Callable[..., object], parameter: inspect.Parameter) -> None:
    """Raise InvalidConfigError if the first parameter is meant for an arg, but would receive the context."""
    name, hint = parameter.name, parameter.annotation
    if hint is parameter.empty:
        is_context = name.lstrip("_") in CONTEXT_NAMES or name == "_" or name.endswith(("ctx", "context"))
        description = f"{name!r}, which has no type"
    else:
        is_context = _takes_context(_hint_of(function, name, hint))
        description = f"{name!r} of type {getattr(hint, '__name__', hint)}"
    if not is_context:
        raise InvalidConfigError(
            f"the handler of kind {kind!r} takes no context: its first parameter is {description}",
            hint=f"a handler takes its context first: (ctx: JobContext, {name}, ...)",
        )


def _hint_of(function: Callable[..., object], name: str, hint: Any) -> Any:
    """Return the type of a parameter, or its text if the type is only imported for type checkers."""
    with suppress(Exception):  # evaluating it may raise anything
        return _hints(function, [name])[name]
    return hint


def _takes_context(hint: Any) -> bool:
    if isinstance(hint, str):
        return "Context" in hint or hint in ("Any", "object")
    if isinstance(hint, TypeVar):
        return True
    if arguments := get_args(hint):
        return any(map(_takes_context, arguments))
    if hint is Any or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return True
    return issubclass(JobContext, hint) or issubclass(hint, JobContext)


def _unusable(kind: str, error: Exception) -> InvalidConfigError:
    text = str(error).partition("\n")[0]
    hint = "use types that pydantic knows, defined or imported at the top of the module"
    return InvalidConfigError(f"a parameter of kind {kind!r} has no usable type: {text}", hint=hint)


def _hints(function: Callable[..., object], names: list[str]) -> dict[str, Any]:
    """Return the types of these parameters alone, as the context's may be imported for type checkers only."""
    plain = inspect.unwrap(function)
    annotations = {name: hint for name, hint in plain.__annotations__.items() if name in names}
    holder = type("Annotations", (), {"__annotations__": annotations})
    return get_type_hints(holder, getattr(plain, "__globals__", {}), include_extras=True)


def _is_model(hint: Any, parameter: inspect.Parameter) -> bool:
    required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    return required and isinstance(hint, type) and (issubclass(hint, BaseModel) or is_dataclass(hint))


def _fields(model: type) -> dict[str, Any]:
    if issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    return get_type_hints(model)


def _arg_names(model: type) -> list[str]:
    """Return the names of the model's fields, and their aliases."""
    if not issubclass(model, BaseModel):
        return list(_fields(model))
    aliases = [alias for field in model.model_fields.values() if (alias := field.alias)]
    return [*model.model_fields, *aliases]


def _check_parameter(kind: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
        hint = "give each parameter after the context a name: args are stored by name"
        raise InvalidConfigError(f"the handler of kind {kind!r} takes {str(parameter)!r} by place", hint=hint)


def _check_no_secrets(kind: str, hints: Args) -> None:
    """Raise InvalidConfigError for a parameter that is a secret.

    It would be stored as stars, and args are stored and shown to operators.
    """
    for name, hint in hints.items():
        if any(part in (SecretStr, SecretBytes) for part in (hint, *get_args(hint))):
            hint_text = "pass a reference to it; a handler gets tokens from `fl.token`"
            raise InvalidConfigError(f"parameter {name!r} of kind {kind!r} is a secret", hint=hint_text)


def _without_names(problem: str) -> str:
    """Return *problem* without the name of an argument if it is no identifier: it may be private data."""
    prefix, quote, rest = problem.partition("keyword argument '")
    return problem if rest.removesuffix("'").isidentifier() or not quote else f"{prefix}keyword argument"


def _problem_of(error: ValidationError) -> str:
    """Describe *error* without values and keys that are not identifiers, which may be private data."""

    def path(loc: tuple[int | str, ...]) -> str:
        return ".".join(redact(str(part)) if re.fullmatch(r"\w{1,64}", str(part)) else "*" for part in loc)

    details = error.errors(include_input=False, include_url=False, include_context=False)
    shown = [
        f"{path(detail['loc']) or 'args'}: {_reason_of(detail['type'], detail['msg'])}"
        for detail in details[:_MOST_SHOWN]
    ]
    more = [f"{len(details) - _MOST_SHOWN} more"] if len(details) > _MOST_SHOWN else []
    return "; ".join(shown + more)


def _reason_of(kind: str, message: str) -> str:
    return (
        "its handler has no such parameter"
        if kind == "extra_forbidden"
        else message.removeprefix("Value error, ")
    )
