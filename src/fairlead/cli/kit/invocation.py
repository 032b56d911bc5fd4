"""What every command shares: the options of all, its output, and the way to a running fairlead.

A command is a function ``(call: Invocation, ...) -> Exit | None`` under ``@command(app, "name")``. Its other
parameters become options and arguments as typer reads them; ``--json``, ``--config`` and their like are added
here, so that they mean the same everywhere and may stand before or after the command's name.
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
from fairlead.cli.kit.output import Output

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.config import Config

T = TypeVar("T")
Command = Callable[..., "Exit | None"]
C = TypeVar("C", bound=Command)

_PANEL = "Options of every command"
_NONE = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """How a command is to behave, whatever it does."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    config_file: Path | None = None

    def over(self, other: GlobalOptions) -> GlobalOptions:
        """These options where they were given, else those of *other*."""
        return GlobalOptions(
            as_json=self.as_json or other.as_json,
            quiet=self.quiet or other.quiet,
            verbose=self.verbose or other.verbose,
            no_color=self.no_color or other.no_color,
            config_file=self.config_file or other.config_file,
        )

    def output(self) -> Output:
        """Where such a command prints."""
        return Output(as_json=self.as_json, quiet=self.quiet, verbose=self.verbose, color=not self.no_color)


class Aborted(Exception):
    """A person said no."""


class OutputClosed(Exception):
    """Nobody reads our output any more; a name of our own, since typer makes a failure of a broken pipe."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of one command."""

    manner: GlobalOptions
    out: Output
    flags: Mapping[tuple[str, ...], Any] = field(default_factory=dict)

    def config(self) -> Config:
        """The settings; InvalidConfigError names all problems."""
        from fairlead.assembly.config import load

        config = load(os.environ, self.manner.config_file, self.flags)
        if config.warning:
            self.out.say(f"warning: {config.warning}")
        return config

    def with_flags(self, flags: Mapping[tuple[str, ...], Any]) -> Invocation:
        """The same with settings from the command line, which rule over all others."""
        return replace(self, flags={**self.flags, **flags})

    def with_fairlead(self, work: Callable[[Fairlead], Awaitable[T]]) -> T:
        """Open fairlead by the settings, do *work*, and let go again."""
        from fairlead.app import Fairlead
        from fairlead.assembly.stores import disable_core_dumps

        disable_core_dumps()

        async def opened() -> T:
            async with Fairlead(self.config()) as fairlead:
                return await work(fairlead)

        return asyncio.run(opened())

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask a person at a terminal before something is destroyed, or raise Declined; scripts go on."""
        if yes or not sys.stdin.isatty():
            return
        from fairlead.cli.kit.output import printable

        if not typer.confirm(printable(question), err=True):
            raise Aborted

    @property
    def actor(self) -> str:
        """Who acts, for the audit: ``cli:`` and the account of this process."""
        try:
            return f"cli:{getpass.getuser()}"
        except (KeyError, OSError):  # an account without a name, as containers have them
            return f"cli:uid {os.getuid()}"


async def until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Do *work*; SIGTERM cancels it, so that it can put everything away, as Ctrl-C does anyway."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


# ---- making commands -----------------------------------------------------------------------------

Json = Annotated[
    bool, typer.Option("--json", help="One JSON object, or one per line.", rich_help_panel=_PANEL)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.", rich_help_panel=_PANEL)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.", rich_help_panel=_PANEL)]
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

DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")]


def markup() -> Any:
    """typer's manner of printing help: boxes for people, plain text for pipes."""
    return "rich" if sys.stdout.isatty() else None


def group(text: str) -> typer.Typer:
    """A group of commands, described by *text*; with one command in it, it still is a group."""
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
    """What holds one command that stands by itself."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=markup())


def command(app: typer.Typer, name: str) -> Callable[[C], C]:
    """Make the decorated function the command *name* of *app*; its docstring is the help."""

    def register(function: C) -> C:
        app.command(name, help=inspect.cleandoc(function.__doc__ or ""))(_runner(function))
        return function

    return register


def listing(app: typer.Typer, name: str) -> Callable[[C], typer.Typer]:
    """Make the decorated function what the group *name* of *app* does by itself: tell what there is.

    Gives the group, for the commands that stand below it.
    """

    def register(function: C) -> typer.Typer:
        below = single()
        told = inspect.cleandoc(function.__doc__ or "")
        below.callback(invoke_without_command=True, help=told)(_runner(function))
        app.add_typer(below, name=name)
        return below

    return register


def _runner(function: Command) -> Command:
    """*function* as typer calls it: with the options of every command, and a call made of them.

    A parameter that is a dataclass stands for an option for each of its fields.
    """
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]  # without `call`
    tables = {each.name: hints[each.name] for each in own if _is_table(hints[each.name])}

    @functools.wraps(function)
    def run(context: typer.Context, **given: Any) -> Exit | None:
        manner = GlobalOptions(**{shared: given.pop(shared) for shared in _SHARED})
        if isinstance(context.obj, GlobalOptions):
            manner = manner.over(context.obj)
        if context.invoked_subcommand is not None:  # a group on the way to one of its commands
            context.obj = manner
            return None
        made = {
            name: table(**{each.name: given.pop(each.name) for each in fields(table)})
            for name, table in tables.items()
        }
        try:
            return function(Invocation(manner, manner.output()), **given, **made)
        except BrokenPipeError:
            raise OutputClosed from None

    parameters = [_parameter("context", typer.Context)]
    for each in own:
        if each.name in tables:
            parameters += _options_of(tables[each.name])
        else:
            parameters.append(_parameter(each.name, hints[each.name], each.default))
    parameters += [_parameter(name, annotation, default) for name, (annotation, default) in _SHARED.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _is_table(hint: object) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _options_of(table: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(table, include_extras=True)
    return [
        _parameter(each.name, hints[each.name], _NONE if each.default is MISSING else each.default)
        for each in fields(table)
    ]


def _parameter(name: str, annotation: Any, default: Any = _NONE) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
