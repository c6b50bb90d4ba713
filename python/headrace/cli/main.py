"""The command line, `headrace COMMAND`: `headrace docs cli`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from headrace import _core, errors
from headrace._process import former
from headrace._process.command import EXIT_INTERRUPTED, raise_interrupts
from headrace._text import one_line, os_reason, print_any_text, printable
from headrace.cli import (
    _advise_commands,
    _commands,
    _docs_commands,
    _node_commands,
    _observe_commands,
    _order_commands,
    _plan_commands,
    _profile_commands,
    _simulate_commands,
    _stage_commands,
)
from headrace.cli._parts.naming import OptionNames
from headrace.formats import table

EXIT_DATA = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_DEFECT = 4
EXIT_PIPE = 141

_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.DataLossError, EXIT_DATA),
    (errors.FailedPreconditionError, EXIT_DATA),
    (errors.InvalidArgumentError, EXIT_USAGE),
    (errors.NotFoundError, EXIT_USAGE),
    (errors.OutOfRangeError, EXIT_USAGE),
    (errors.CancelledError, EXIT_INTERRUPTED),
    (errors.ResourceExhaustedError, EXIT_ENVIRONMENT),
    (errors.UnavailableError, EXIT_ENVIRONMENT),
    (errors.DeadlineExceededError, EXIT_ENVIRONMENT),
    (OSError, EXIT_ENVIRONMENT),
    (ImportError, EXIT_ENVIRONMENT),
)


def _fail(message: str, code: int, cause: BaseException) -> NoReturn:
    if os.environ.get("HEADRACE_DEBUG"):
        traceback.print_exc()
    notes = getattr(cause, "__notes__", [])  # what to do next: a shard kept, a command to repeat
    print(printable(one_line(f"headrace: {'; '.join([message, *notes])}")), file=sys.stderr)
    raise typer.Exit(code)


def _message(error: Exception) -> str:
    """The text of an error; of a plain OSError with a remedy if it is a lack of permission."""
    if isinstance(error, PermissionError) and isinstance(error.filename, str | bytes):
        return f"{os.fsdecode(error.filename)}: {os_reason(error)}"
    return str(error)


_Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose errors end in one message and an exit code. It takes `--debug`, as
    `headrace` itself does."""
    names = OptionNames(command)
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    parameters.append(
        inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Debug)
    )

    @functools.wraps(command)
    def guarded(*args: object, debug: bool = False, **kwargs: object) -> None:
        if debug:
            os.environ["HEADRACE_DEBUG"] = "1"
        print_any_text()
        try:
            raise_interrupts()
            table.import_named(os.environ.get("HEADRACE_FORMATS", ""))
            command(*args, **kwargs)
        except KeyboardInterrupt as error:
            _fail("stopped by Ctrl-C", EXIT_INTERRUPTED, error)
        except BrokenPipeError:
            raise  # `_Commands` ends.
        except MemoryError as error:
            _fail("the system has no memory for that", EXIT_ENVIRONMENT, error)
        except (errors.HeadraceError, OSError, ImportError) as error:
            code = next((c for kind, c in _EXIT_CODES if isinstance(error, kind)), EXIT_DEFECT)
            _fail(names.said(_message(error)), code, error)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            _fail(
                f"a defect of headrace: {type(error).__name__}: {error}; run it again with "
                "--debug and report what it says",
                EXIT_DEFECT,
                error,
            )

    taken: Any = guarded
    taken.__signature__ = inspect.Signature(parameters)
    taken.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return guarded


@contextlib.contextmanager
def _output_taken() -> Iterator[None]:
    """If nobody reads the output any more, as of `headrace order ... | head`, the command ends
    without a message, as one does that SIGPIPE ends."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise  # Rich makes this one of the other.
        # Do not flush into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_PIPE) from None


class _Commands(TyperGroup):
    """All commands: what is the same for each."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _output_taken():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _output_taken():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *words = args
        now = former.COMMANDS.get(name)
        what = f"command {name!r}: no such command; write `{now}`"
        for option, other in former.OPTIONS.get(name, {}).items():
            if now is None and option in (word.partition("=")[0] for word in words):
                now, what = other, f"option {option}: no such option; write {other}"
        if now is not None and not ctx.resilient_parsing:
            error = errors.InvalidArgumentError(what)
            _fail(str(error), EXIT_USAGE, error)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="headrace",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Training samples at the speed of the storage.\n\n"
        "Start with [bold]headrace inspect FOLDER[/bold] on a folder of images, then "
        "[bold]headrace pack FOLDER TARGET[/bold] to rewrite it for fast reads. "
        "[bold]headrace docs guides/tutorial[/bold] takes ten minutes."
    ),
)


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"


@app.callback(invoke_without_command=True)
def _options(
    debug: _Debug = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True)
    ] = False,
) -> None:
    if version:
        print(f"headrace {_core.version} (Python {platform.python_version()}, {_machine()})")
        raise typer.Exit
    if debug:
        os.environ["HEADRACE_DEBUG"] = "1"


def _add(name: str, command: Callable[..., None], kind: type[TyperCommand] = TyperCommand) -> None:
    app.command(name, cls=kind)(_guarded(command))


for _command in (_commands.index, _commands.pack, _commands.inspect, _commands.verify):
    _add(_command.__name__, _command)


class _OrderCommand(TyperCommand):
    """A command with `--set NAME=VALUE`; `--NAME VALUE` of an unknown name says so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        for word, following in zip(args, [*args[1:], "--"], strict=False):
            option, equals, value = word.partition("=")
            if ctx.resilient_parsing or option == "--":
                break
            if option.startswith("--") and option not in options:
                if not equals:
                    value = "VALUE" if following.startswith("--") else following
                name = option[2:].replace("-", "_")
                assert self.callback is not None
                meant = OptionNames(self.callback).meant(name)
                way = (
                    f"a parameter of the order is given as --set {name}={value}"
                    if meant is None
                    else f"write {meant} {value}"
                )
                error = errors.InvalidArgumentError(
                    f"option {option}: not understood; {way}; see --help"
                )
                _fail(str(error), EXIT_USAGE, error)
        return super().parse_args(ctx, args)


_add("order", _order_commands.order, _OrderCommand)
_add("profile", _profile_commands.profile)
_add("advise", _advise_commands.advise)
_add("plan", _plan_commands.plan, _OrderCommand)
_add("stage", _stage_commands.stage_command, _OrderCommand)
_add("simulate", _simulate_commands.simulate)
_add("node", _node_commands.node)
_add("top", _observe_commands.top)
_add("report", _observe_commands.report)
_add("docs", _docs_commands.docs)


def main() -> None:
    """Runs the command line and exits with a code of `headrace docs cli`."""
    app()
