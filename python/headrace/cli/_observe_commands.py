"""`headrace top` and `headrace report`: loaders of this user that are monitored."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from headrace._observe import prometheus
from headrace._observe._steps import plot
from headrace._observe._steps.merge import write_merged
from headrace._observe.monitor import Address
from headrace.cli._jobs.machines import Machines, addresses_of
from headrace.cli._jobs.nodes import VIA
from headrace.cli._jobs.watch import watch_ranks
from headrace.cli._parts import top as _top
from headrace.cli._parts.options import Json, OtherMachines, Via, WholeJob
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.formats._base.outside import check_outside

_SECONDS_MIN = 0.1
_INTERVAL = 1.0  # seconds
_WATCH_INTERVAL = 5.0
_AFTER = 30.0
_CHART = "headrace-report.png"
_TRACE = "headrace-trace.json"


def top(
    pids: Annotated[
        list[int] | None, typer.Argument(help="Only these processes; default: all.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds between updates; default: {_INTERVAL:.0f}, with --watch "
            f"{_WATCH_INTERVAL:.0f}."
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print once, and end; with --watch look twice.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Instead of a table print a line when a rank is late.")
    ] = False,
    after: Annotated[
        float | None,
        typer.Option(
            help="With --watch: seconds without a batch after which a job stands still; "
            f"default: {_AFTER:.0f}."
        ),
    ] = None,
    as_json: Json = False,
    as_prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics in Prometheus' text format.")
    ] = False,
    node: OtherMachines = None,
    job: WholeJob = False,
    via: Via = VIA,
) -> None:
    """Show this user's running loaders: rates, waits by cause, advice, and which rank is late.

    Shows loaders made with EngineOptions(monitor=True), or with HEADRACE_MONITOR=1 in their
    environment. In a terminal it runs until Ctrl-C; rates are those since the last update.

    With --node or --job also those of other machines, which it asks by ssh.

    With --watch it prints which rank of a job is late, and for what it waits, when that changes: a
    rank falls behind, waits while others do not, gives no answer, or no rank takes a batch.

    Example: [bold]headrace top[/bold]
    Example: [bold]headrace top --watch --job --after 60[/bold]
    """
    for option, seconds in (("--interval", interval), ("--after", after)):
        if seconds is not None and seconds < _SECONDS_MIN:
            raise InvalidArgumentError(f"{option}: got {seconds}, must be {_SECONDS_MIN} s or more")
    if as_prometheus and (as_json or watch):
        other = "--json" if as_json else "--watch"
        raise InvalidArgumentError(f"{other} with --prometheus: choose one")
    if after is not None and not watch:
        raise InvalidArgumentError("--after: is for --watch; give it, too, or leave --after out")
    machines = Machines(pids, node or [], job, via)
    if (as_json or as_prometheus) and not watch:
        _print_snapshots(machines, as_json)
        return
    if interval is None:
        interval = _WATCH_INTERVAL if watch else _INTERVAL
    try:
        if watch:
            watch_ranks(machines, interval, _AFTER if after is None else after, once, as_json)
        else:
            _show_board(machines, interval, once)
    except KeyboardInterrupt:  # The normal way to leave.
        return


def _print_snapshots(machines: Machines, as_json: bool) -> None:
    """As JSON, or as metrics of Prometheus."""
    local, elsewhere, unheard = machines.ask()
    snapshots = _top.ask_all(local) | elsewhere
    for name, reason in unheard.items():
        print(f"headrace: {name}: no answer: {reason}", file=sys.stderr)
    if as_json:
        loaders = [_labels(at) | snapshot for at, snapshot in snapshots.items()]
        print(json.dumps({"loaders": loaders}))
    else:
        labelled = [
            ({"pid": at.pid, "loader": at.ordinal} | _machine(at), snapshot)
            for at, snapshot in snapshots.items()
        ]
        print(prometheus.expose(labelled), end="")


def _show_board(machines: Machines, interval: float, once: bool) -> None:
    console = Console(highlight=False)
    board = _top.Board()
    board.look(*machines.ask())
    if once or not console.is_terminal:
        # For a pipe, lines are never cut.
        console.print(board.render(console), soft_wrap=not console.is_terminal)
        return
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
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PID|TRACE",
            help="The process; default: the only one. With --merge files that loader.trace() "
            "wrote.",
        ),
    ] = None,
    loader: Annotated[
        int | None, typer.Option(help="Number of the loader: in top, after the dot.")
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Merge traces of several loaders into one, instead of drawing."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The chart, in the format of its name, or the merged trace; default: "
            f"{_CHART}, {_TRACE}.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw a loader's recent steps: times, waits, imbalance, reuse, bytes; or merge traces.

    The loader must be made with EngineOptions(monitor=True), or with HEADRACE_MONITOR=1 in its
    environment. In the program itself: loader.report("chart.png").

    With --merge it makes one trace of those of several ranks, processes and machines: each is a
    process of it, named by its machine. Machines' clocks are brought together by the time of day at
    which the files were written.

    Example: [bold]headrace report 4242 -o loader.png[/bold]
    Example: [bold]headrace report --merge rank0.json rank1.json -o job.json[/bold]
    """
    if merge:
        if loader is not None:
            raise InvalidArgumentError("--loader with --merge: choose one")
        _merge([Path(name) for name in sources or []], output or Path(_TRACE), as_json)
    else:
        _draw(_pid(sources or []), loader, output or Path(_CHART), as_json)


def _pid(sources: list[str]) -> int | None:
    if not sources:
        return None
    if len(sources) > 1 or not sources[0].isdecimal():
        raise InvalidArgumentError(
            f"headrace report {shlex.join(sources)}: must be the number of one process; to merge "
            "traces give --merge, too"
        )
    return int(sources[0])


def _merge(traces: list[Path], output: Path, as_json: bool) -> None:
    if output.resolve() in [path.resolve() for path in traces]:
        raise InvalidArgumentError(f"--output: {output} is one of the traces; name another file")
    events = write_merged(traces, output)
    if as_json:
        print(json.dumps({"output": str(output), "traces": len(traces), "events": events}))
    else:
        print(f"merged {len(traces)} traces, {events:,} events: {output}")


def _draw(pid: int | None, loader: int | None, output: Path, as_json: bool) -> None:
    plot.check(output)
    observation = _observation(_choose(pid, loader))
    check_outside("--output", output, observation.get("image_folder"))
    plot.draw(output, observation)
    verdict = observation["stats"]["verdict"]
    if as_json:
        print(json.dumps({"output": str(output), "verdict": verdict}))
    else:
        print(f"drew {verdict}: {output}")


def _choose(pid: int | None, loader: int | None) -> Address:
    """The loader to draw."""
    addresses = [
        address
        for address in addresses_of(None if pid is None else [pid])
        if loader is None or address.ordinal == loader
    ]
    if not addresses and loader is not None:
        raise NotFoundError(
            f"--loader {loader}: no loader of yours that is monitored has this number; see "
            "'headrace top'"
        )
    if not addresses:
        raise NotFoundError(
            "no loader of yours is monitored: make it with EngineOptions(monitor=True), or set "
            "HEADRACE_MONITOR=1"
        )
    if len(addresses) > 1:
        names = ", ".join(f"{address.pid} --loader {address.ordinal}" for address in addresses)
        raise InvalidArgumentError(f"{len(addresses)} loaders are monitored, choose one: {names}")
    return addresses[0]


def _observation(address: Address) -> dict[str, Any]:
    observation = address.ask("report")
    if observation is None:
        raise NotFoundError(
            f"process {address.pid}: its loader was closed, or does not answer; "
            "`headrace top` lists those there are"
        )
    return observation
