"""The options of `plan` and `order`, which plan a job: each is declared once, here or as an
argument of a Loader."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer

from headrace import _core
from headrace._loader import Loader
from headrace._loading.options import LoaderArguments
from headrace._options.groups import described
from headrace.cli._parts.options import FormatName, FormatOptions, Skip, SplitName


def of_loader(name: str, *spellings: str, group: type = Loader) -> Any:
    """The option that is an argument of a Loader or of one of its groups, with its first sentence
    as help."""
    text = described(group).get(name, "").replace('"', "")
    first = text.partition("; ")[0].partition(". ")[0].rstrip(".")
    return typer.Option(*spellings, help=f"{first[:1].upper()}{first[1:]}.")


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """A job, without its size."""

    order: Annotated[str, typer.Option(help=f"One of {', '.join(_core.order_names())}.")] = str(
        LoaderArguments.order
    )
    seed: Annotated[int, of_loader("seed")] = LoaderArguments.seed
    drop_last: Annotated[bool, of_loader("drop_last", "--drop-last")] = LoaderArguments.drop_last
    no_shuffle: Annotated[
        bool, typer.Option("--no-shuffle", help="Samples in storage order.")
    ] = not LoaderArguments.shuffle
    block_samples: Annotated[
        int | None, typer.Option(help="Samples a block; default: the dataset's blocks, or 64.")
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A parameter of the order (headrace docs orders); may be repeated.",
        ),
    ] = None
    skip: Skip = None
    format: FormatName = None
    options: FormatOptions = None
    split: SplitName = None


@dataclass(frozen=True, kw_only=True)
class OrderOptions(JobOptions):
    """A job of a dataset, or of so many samples, of which only the order is planned."""

    dataset: Annotated[
        str | None, typer.Argument(help="A folder, a pack or an index file.", show_default=False)
    ] = None
    samples: Annotated[
        int | None, typer.Option(help="Plan this many samples, without a dataset.")
    ] = None
    memory: Annotated[
        str | None, typer.Option(help="Memory of the order's pool: 10% of the dataset, or bytes.")
    ] = None
    batch: Annotated[
        int | None, typer.Option(help="Samples a step, of all ranks; default: 256.")
    ] = None
    epochs: Annotated[int, typer.Option(help="Number of epochs to plan.")] = 1
    ranks: Annotated[int, typer.Option(help="Ranks that share each batch.")] = 1


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose first parameter, a dataclass, becomes an option for each field."""
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    kind: Any = first.annotation
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        inspect.Parameter(
            field.name, first.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(kind)
    ]
    parameters = [*fields, *(parameter.replace(kind=first.KEYWORD_ONLY) for parameter in own)]

    @functools.wraps(command)
    def unfolded(**values: Any) -> None:
        command(kind(**{field.name: values.pop(field.name) for field in fields}), **values)

    shown: Any = unfolded
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return unfolded
