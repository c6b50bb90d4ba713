"""The grades of an order in words: `headrace order`."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from headrace._units import counted


def print_report(result: dict[str, Any]) -> None:
    """The report of `_parts.quality`: effects, measures, ranks, nodes, the verdict."""
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
    more = Table.grid(padding=(0, 2))
    for name, value in sorted(result["more"].items()):
        more.add_row(name, f"{value:.5g}")
    console.print(more, soft_wrap=True)
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
