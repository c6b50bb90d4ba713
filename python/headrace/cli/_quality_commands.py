"""`headrace quality`: a table, a verdict, JSON, a chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from headrace._dataset import image_folder
from headrace._units import counted
from headrace.cli._order_commands import open_source
from headrace.cli._parts import orders as _orders
from headrace.cli._parts import quality as _quality
from headrace.cli._parts.job import OrderOptions, with_options
from headrace.cli._parts.options import Json
from headrace.errors import InvalidArgumentError
from headrace.formats._base.outside import check_outside


@with_options
def quality(
    job: OrderOptions,
    ids: Annotated[
        Path | None,
        typer.Option(help="Measure this log of sample numbers (.npy or text) of any loader."),
    ] = None,
    ranks_per_node: Annotated[int, typer.Option(help="Report nodes of this many ranks, too.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Write a chart (.png).")] = None,
    as_json: Json = False,
) -> None:
    """Measure the shuffle of an order, or of the log of any loader.

    Grades the effects on training, and says what to change. Prints each measure beside its value
    for a uniform permutation. Default: the order of a Loader on this machine. Reads no sample.

    Example: [bold]headrace quality /data/images --order epoch --memory 10% --batch 256[/bold]
    """
    if plot is not None and plot.suffix.lower() != ".png":
        raise InvalidArgumentError(f"--plot {plot}: must be a file of suffix .png")
    source = open_source(job)
    if plot is not None and source.dataset is not None:
        check_outside("--plot", plot, image_folder(source.dataset))
    first: _orders.Ids
    if ids is None:
        planned = _orders.make_planned(source, job)
        result = _quality.measure(planned, ranks_per_node)
        first = _quality.first_epoch_ids(planned) if plot else np.empty(0, np.uint64)
    else:
        _refuse_with_ids(job)
        log = source.places(_quality.read_ids(ids))
        batch = 256 if job.batch is None else job.batch
        result = _quality.measure_ids(source, log, batch, job.epochs)
        first = log[: len(log) // job.epochs]
    result |= {"samples": source.samples, "blocks": source.blocks.block_count}
    if plot is not None:
        from headrace.cli._plots.quality_plot import draw

        draw(plot, source, first, result)
    if as_json:
        print(json.dumps(result))
    else:
        _print(result)


def _refuse_with_ids(job: OrderOptions) -> None:
    is_plain = job.order == OrderOptions.order and job.ranks == OrderOptions.ranks
    if not is_plain or job.settings or job.memory is not None:
        raise InvalidArgumentError(
            "--ids: a log has no order, parameters, memory or ranks; leave them out"
        )


def _print(result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("", "measure", "value", "uniform", "bounds", "z", ""):
        table.add_column(
            heading, justify="right" if heading in ("value", "uniform", "z") else "left"
        )
    for test in result["tests"]:
        table.add_row(
            test["id"],
            test["name"],
            f"{test['value']:.5g}",
            f"{test['expected']:.5g}",
            f"{test['low']:.5g} to {test['high']:.5g}",
            f"{test['z']:.1f}",
            "" if test["within"] else "*",
        )
    console.print(
        f"{counted(result['positions'], 'sample')} in {counted(result['epochs'], 'epoch')}: "
        f"{result['missing']:,} missing, {result['duplicated']:,} duplicated, "
        f"{result['unknown']:,} unknown ({result['dropped']:,} dropped and "
        f"{result['padded']:,} padded as declared)",
        soft_wrap=True,
    )
    console.print(_effects(result), soft_wrap=True)
    console.print(table, soft_wrap=True)
    console.print("* not as by chance: outside the bounds of a uniform permutation")
    told = Table.grid(padding=(0, 2))
    for name, value in sorted(result["more"].items()):
        told.add_row(name, f"{value:.5g}")
    console.print(told, soft_wrap=True)
    for kind in ("rank", "node"):
        _print_parts(console, kind, result[f"per_{kind}"])
    if expected := result.get("expected"):
        _print_expected(console, expected)
    console.print(
        f"equivalent buffer: {result['equivalent_buffer']:,.0f} of {result['groups']:,.0f} blocks\n"
        f"verdict: {result['verdict']}: {result['why']}",
        soft_wrap=True,
    )
    if result["change"]:
        console.print(f"to change: {result['change']}", soft_wrap=True)


def _effects(result: dict[str, Any]) -> Table:
    """Effects on training, worst first."""
    table = Table(box=None, pad_edge=False)
    for heading in ("effect", "grade", "value", "good", ""):
        table.add_column(heading, justify="right" if heading in ("value", "good") else "left")
    for effect in result["effects"]:
        table.add_row(
            effect["name"],
            effect["grade"],
            f"{effect['value']:.4g}",
            f"{effect['good']:.4g}",
            effect["what"],
        )
    return table


def _print_parts(console: Console, kind: str, parts: list[dict[str, Any]]) -> None:
    if not parts:
        return
    table = Table(box=None, pad_edge=False)
    for heading in (
        kind,
        "verdict",
        "vif at its batch",
        "share of the data seen",
        "not as by chance",
    ):
        table.add_column(heading)
    for number, part in enumerate(parts):
        vif = next(iter(part["vif"].values()), None)
        table.add_row(
            str(number),
            part["verdict"],
            "" if vif is None else f"{vif:.4f}",
            f"{part['seen_share']:.1%}",
            ", ".join(part["failed"]),
        )
    console.print(table, soft_wrap=True)


def _print_expected(console: Console, expected: dict[str, float | None]) -> None:
    text = f"expected variance inflation of a batch: {expected['of_blocks']:.4f} of blocks"
    if expected["of_labels"] is not None:
        text += (
            f", {expected['of_labels']:.4f} of labels (their correlation in blocks is "
            f"{expected['correlation']:.3f})"
        )
    if expected["of_blocks_first"] != expected["of_blocks"]:
        text += f"; {expected['of_blocks_first']:.4f} of blocks when a run begins"
    console.print(text, soft_wrap=True)
