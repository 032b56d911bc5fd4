"""The root of all commands: parse, run, and turn any error into a message and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from typer.main import get_command

from fairlead import errors
from fairlead._version import __version__
from fairlead.cli.kit.exits import Exit, exit_code
from fairlead.cli.kit.invocation import (
    AbortedError,
    ConfigFile,
    GlobalOptions,
    Json,
    NoColor,
    OutputClosedError,
    Quiet,
    Verbose,
    markup,
)
from fairlead.cli.kit.output import Output
from fairlead.cli.registry import Commands
from fairlead.errors import FairleadError
from fairlead.policy.reasons.process_reasons import FORBIDDEN
from fairlead.policy.text.redact import redact
from fairlead.policy.text.safe import safe_text

PROGRAM = "fairlead"
COMPLETING = "_FAIRLEAD_COMPLETE"

# The class that typer raises for an invalid command line. Its module differs between versions; its subclass's does not.
UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])


def run(arguments: Sequence[str]) -> int:
    """Run the command line *arguments*, and return the exit code. Never raises."""
    options = _early_options(arguments)
    out = options.output()
    if options.no_color:
        os.environ["NO_COLOR"] = "1"  # typer's pages read it
    if COMPLETING in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    try:
        return int(root().main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False) or Exit.OK)
    except OutputClosedError:
        return _close_output()
    except (KeyboardInterrupt, typer.Abort):
        out.say("interrupted")
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 (the last handler: a message and a code, never a traceback)
        return _report(error, out)


def root() -> Any:
    """Return the command that contains all others."""
    app = typer.Typer(
        cls=Commands,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=markup(),
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_every_command)
    return get_command(app)


def _every_command(
    context: typer.Context,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_color: NoColor = False,
    config_file: ConfigFile = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Keep every tenant's tokens fresh and every call within its limits.

    Begin with `fairlead init`, or watch `fairlead demo`.
    """
    if version:
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit
    context.obj = GlobalOptions(as_json, quiet, verbose, no_color, config_file)


def _early_options(arguments: Sequence[str]) -> GlobalOptions:
    """Read the global options from unparsed arguments, for errors of the parser."""
    words = set(arguments)
    return GlobalOptions(
        as_json="--json" in words,
        quiet=bool({"--quiet", "-q"} & words),
        verbose=bool({"--verbose", "-v"} & words),
        no_color="--no-color" in words,
    )


def _report(error: Exception, out: Output) -> int:
    while isinstance(error, ExceptionGroup):  # of a task group; the first error is the cause
        error = error.exceptions[0]
    if isinstance(error, FairleadError):
        out.problem(error)
        return exit_code(error)
    if isinstance(error, UsageError):
        return _report_usage(error, out)
    if isinstance(error, AbortedError):
        out.say("nothing was changed")
        return Exit.FAILED
    if isinstance(error, PermissionError):
        out.error(f"{error.filename}: {error.strerror}", hint=FORBIDDEN.hint, code=FORBIDDEN.code)
        return Exit.FORBIDDEN
    return _report_bug(error, out)


def _report_usage(error: Any, out: Output) -> int:
    """Report a command line that cannot be used; a group without a command shows its help."""
    context = error.ctx
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return Exit.USAGE
    path = context.command_path if context is not None else PROGRAM
    message = redact(error.format_message())  # it repeats the command line
    out.error(message, hint=f"see `{path} --help`", code=errors.UsageError.code)
    return Exit.USAGE


def _report_bug(error: Exception, out: Output) -> int:
    if out.verbose:
        out.detail_lines(redact("".join(traceback.format_exception(error))))
    hint = "run it again with --verbose and report what it prints"
    message = redact(safe_text(error))
    out.error(f"this should not happen: {message}", hint=hint, code=FairleadError.code)
    return Exit.FAILED


def _close_output() -> int:
    """Discard buffered output after its reader has closed the pipe (`| head`)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK
