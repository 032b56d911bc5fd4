"""What every command shares: the global options, its output, and access to an open runtime.

A command is a function ``(call: Invocation, ...) -> Exit | None`` under ``@command(app, "name")``. Its other
parameters become options and arguments as typer reads them; a parameter that is a dataclass becomes one option
for each of its fields. ``--json``, ``--config`` and the other global options are added here. They mean the same
in all commands, and may stand before or after the command's name.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.output import Output, printable

if TYPE_CHECKING:
    from fairlead.assembly.config import Config
    from fairlead.assembly.runtime import Runtime

T = TypeVar("T")
Command = Callable[..., "Exit | None"]
C = TypeVar("C", bound=Command)

_PANEL = "Options of every command"
_NO_DEFAULT = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The options of every command."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    config_file: Path | None = None

    def over(self, other: GlobalOptions) -> GlobalOptions:
        """Return these options where they are set, else those of *other*."""
        return GlobalOptions(
            *(getattr(self, option.name) or getattr(other, option.name) for option in fields(self))
        )

    def output(self) -> Output:
        """Return the output of a command with these options."""
        return Output(as_json=self.as_json, quiet=self.quiet, verbose=self.verbose, color=not self.no_color)


class AbortedError(Exception):
    """The operator answered no."""


class OutputClosedError(Exception):
    """The reader of our output has gone. Not a BrokenPipeError, which typer reports as a failure."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of one command."""

    options: GlobalOptions
    out: Output
    flags: Mapping[tuple[str, ...], Any] = field(default_factory=dict)

    def config(self) -> Config:
        """Return the settings.

        Raises:
            InvalidConfigError: Names all problems.
        """
        from fairlead.assembly.config import load

        config = load(os.environ, self.options.config_file, self.flags)
        if config.warning:
            self.out.say(f"warning: {config.warning}")
        return config

    def with_flags(self, flags: Mapping[tuple[str, ...], Any]) -> Invocation:
        """Return a copy with settings from the command line, which take precedence over all others."""
        return replace(self, flags={**self.flags, **flags})

    def with_runtime(self, work: Callable[[Runtime], Awaitable[T]]) -> T:
        """Open a runtime by the settings, do *work*, and close it."""
        from fairlead.app import Fairlead
        from fairlead.assembly.stores import disable_core_dumps

        disable_core_dumps()

        async def opened() -> T:
            async with Fairlead(self.config()) as fairlead:
                return await work(fairlead.runtime)

        return asyncio.run(opened())

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask at a terminal before something is changed; scripts are not asked.

        Raises:
            AbortedError: The answer was no.
        """
        if yes or not sys.stdin.isatty():
            return
        if not typer.confirm(printable(question), err=True):
            raise AbortedError

    @property
    def actor(self) -> str:
        """The actor of audit records: ``cli:`` and the account of this process."""
        try:
            return f"cli:{getpass.getuser()}"
        except (KeyError, OSError):  # an account without a name, as containers have them
            return f"cli:uid {os.getuid()}"


async def until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Do *work*. SIGTERM cancels it, as Ctrl-C does, so that it can clean up."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


# ---- making commands -----------------------------------------------------------------------------

Json = Annotated[
    bool, typer.Option("--json", help="One JSON object, or one per line.", rich_help_panel=_PANEL)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.", rich_help_panel=_PANEL)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="More details.", rich_help_panel=_PANEL)]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour.", rich_help_panel=_PANEL)]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file. Default FAIRLEAD_CONFIG, else ./fairlead.toml.",
        rich_help_panel=_PANEL,
    ),
]
_SHARED: dict[str, tuple[Any, Any]] = {
    "as_json": (Json, False),
    "quiet": (Quiet, False),
    "verbose": (Verbose, False),
    "no_color": (NoColor, False),
    "config_file": (ConfigFile, None),
}

Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="The maximum number.")]


def markup() -> Any:
    """Return typer's markup mode for help: boxes at a terminal, plain text in a pipe."""
    return "rich" if sys.stdout.isatty() else None


def group(text: str) -> typer.Typer:
    """Return a group of commands, described by *text*; with one command in it, it still is a group."""
    app = typer.Typer(
        help=text,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=markup(),
    )
    app.callback()(lambda: None)
    return app


def single() -> typer.Typer:
    """Return an app for one command without a group."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=markup())


def command(app: typer.Typer, name: str) -> Callable[[C], C]:
    """Make the decorated function the command *name* of *app*; its docstring is the help."""

    def register(function: C) -> C:
        app.command(name, help=inspect.cleandoc(function.__doc__ or ""))(_runner(function))
        return function

    return register


def listing(app: typer.Typer, name: str) -> Callable[[C], typer.Typer]:
    """Make the decorated function what the group *name* of *app* does without a subcommand.

    Returns the group, for its subcommands.
    """

    def register(function: C) -> typer.Typer:
        below = single()
        text = inspect.cleandoc(function.__doc__ or "")
        below.callback(invoke_without_command=True, help=text)(_runner(function))
        app.add_typer(below, name=name)
        return below

    return register


def _runner(function: Command) -> Command:
    """Wrap *function* for typer: add the global options, and build its `Invocation` and dataclasses."""
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]  # without `call`
    tables = {p.name: hints[p.name] for p in parameters if _is_table(hints[p.name])}

    @functools.wraps(function)
    def run(context: typer.Context, **values: Any) -> Exit | None:
        options = GlobalOptions(**{shared: values.pop(shared) for shared in _SHARED})
        if isinstance(context.obj, GlobalOptions):
            options = options.over(context.obj)
        if context.invoked_subcommand is not None:  # a group on the way to one of its commands
            context.obj = options
            return None
        for name, table in tables.items():
            values[name] = table(**{option.name: values.pop(option.name) for option in fields(table)})
        try:
            return function(Invocation(options, options.output()), **values)
        except BrokenPipeError:
            raise OutputClosedError from None

    signature = [_parameter("context", typer.Context)]
    for parameter in parameters:
        name = parameter.name
        if name in tables:
            signature += _options_of(tables[name])
        else:
            signature.append(_parameter(name, hints[name], parameter.default))
    signature += [_parameter(name, annotation, default) for name, (annotation, default) in _SHARED.items()]
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    return run


def _is_table(hint: object) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _options_of(table: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(table, include_extras=True)
    return [
        _parameter(
            option.name, hints[option.name], _NO_DEFAULT if option.default is MISSING else option.default
        )
        for option in fields(table)
    ]


def _parameter(name: str, annotation: Any, default: Any = _NO_DEFAULT) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
