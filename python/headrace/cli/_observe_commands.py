"""`headrace top` and `headrace report`: loaders of this user that are monitored."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from headrace._observe import plot, prometheus
from headrace._observe.monitor import Address
from headrace.cli._jobs.machines import Machines, addresses_of
from headrace.cli._jobs.nodes import VIA
from headrace.cli._parts import top as _top
from headrace.cli._parts.options import Job, Json, Nodes, Via
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.formats._base.outside import check_outside

_INTERVAL_MIN = 0.1


def top(
    pids: Annotated[
        list[int] | None, typer.Argument(help="Only these processes; default: all.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once, and end.")] = False,
    as_json: Json = False,
    as_prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics in Prometheus' text format.")
    ] = False,
    node: Nodes = None,
    job: Job = False,
    via: Via = VIA,
) -> None:
    """Show this user's running loaders: rates, waits by cause, and advice.

    Shows loaders made with EngineOptions(monitor=True), or with HEADRACE_MONITOR=1 in their
    environment. In a terminal it runs until Ctrl-C; rates are those since the last update.

    With --node or --job also those of other machines, which it asks by ssh.

    Example: [bold]headrace top[/bold]
    """
    if interval < _INTERVAL_MIN:
        raise InvalidArgumentError(f"--interval: got {interval}, must be {_INTERVAL_MIN} s or more")
    if as_json and as_prometheus:
        raise InvalidArgumentError("--json with --prometheus: choose one")
    machines = Machines(pids, node or [], job, via)
    if as_json or as_prometheus:
        local, elsewhere, unheard = machines.ask()
        found = _top.ask_all(local) | elsewhere
        for name, reason in unheard.items():
            print(f"headrace: {name}: no answer: {reason}", file=sys.stderr)
        if as_json:
            loaders = [_labels(at) | snapshot for at, snapshot in found.items()]
            print(json.dumps({"loaders": loaders}))
        else:
            labelled = [
                ({"pid": at.pid, "loader": at.ordinal} | _machine(at), snapshot)
                for at, snapshot in found.items()
            ]
            print(prometheus.expose(labelled), end="")
        return
    console = Console(highlight=False)
    board = _top.Board()
    try:
        board.look(*machines.ask())
        if once or not console.is_terminal:
            # For a pipe, lines are never cut.
            console.print(board.render(console), soft_wrap=not console.is_terminal)
        else:
            _watch(console, board, machines, interval)
    except KeyboardInterrupt:  # The normal way to leave.
        return


def _watch(console: Console, board: _top.Board, machines: Machines, interval: float) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(board.render(console), refresh=True)
            time.sleep(interval)
            board.look(*machines.ask(again=True))


def _labels(at: Address) -> dict[str, Any]:
    return {"ordinal": at.ordinal} | _machine(at)


def _machine(at: Address) -> dict[str, str]:
    return {"node": at.node} if at.node else {}


def report(
    pid: Annotated[int | None, typer.Argument(help="The process; default: the only one.")] = None,
    loader: Annotated[
        int | None, typer.Option(help="Number of the loader: in top, after the dot.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The chart, in the format of its name.")
    ] = Path("headrace-report.png"),
) -> None:
    """Draw a loader's recent steps: times of batches, waits, imbalance, reuse, bytes.

    The loader must be made with EngineOptions(monitor=True), or with HEADRACE_MONITOR=1 in its
    environment. In the program itself: loader.report("chart.png").

    Example: [bold]headrace report 4242 -o loader.png[/bold]
    """
    plot.check(output)
    found = [
        address
        for address in addresses_of(None if pid is None else [pid])
        if loader is None or address.ordinal == loader
    ]
    if not found and loader is not None:
        raise NotFoundError(
            f"--loader {loader}: no loader of yours that is monitored has this number; see "
            "'headrace top'"
        )
    if not found:
        raise NotFoundError(
            "no loader of yours is monitored: make it with EngineOptions(monitor=True), or set "
            "HEADRACE_MONITOR=1"
        )
    if len(found) > 1:
        names = ", ".join(f"{address.pid} --loader {address.ordinal}" for address in found)
        raise InvalidArgumentError(f"{len(found)} loaders are monitored, choose one: {names}")
    observation = found[0].ask("report")
    if observation is None:
        raise NotFoundError(
            f"process {found[0].pid}: its loader was closed, or does not answer; "
            "`headrace top` lists those there are"
        )
    check_outside("--output", output, observation.get("image_folder"))
    plot.draw(output, observation)
    print(f"drew {observation['stats']['verdict']}: {output}")
