"""`headrace node`: a node process that runs as a service."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from headrace import _core
from headrace._nodes.process import executable, service_socket
from headrace._process.helpers import node_arguments
from headrace._units import format_bytes, parse_share_or_bytes
from headrace.errors import InvalidArgumentError


def node(
    name: Annotated[str, typer.Option(help="The name for loaders: Node(name=NAME).")],
    memory: Annotated[
        str | None,
        typer.Option(help="Limit of all jobs together, such as 64GiB or 50%; default: no limit."),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            help="Part of --memory in which jobs that read the same data share what they read, "
            "such as 16GiB; default: none, each job reads for itself."
        ),
    ] = None,
) -> None:
    """Serve the loaders of this user on this machine, until Ctrl-C or SIGTERM.

    Outlives its jobs: the next job with the same data reuses their tiers.

    Example: [bold]headrace node --name train --memory 64GiB[/bold]
    """
    program = executable()
    arguments = [program, "--name", service_socket(name), "--service", *node_arguments()]
    usable = _core.memory_limit_bytes()
    if memory is not None:
        parsed = parse_share_or_bytes(memory, "--memory", usable)
        if parsed == 0:
            raise InvalidArgumentError("--memory: got 0 bytes; leave it out for no limit")
        if parsed > usable:
            raise InvalidArgumentError(
                f"--memory: got {format_bytes(parsed)}, but the machine, or this process's cgroup, "
                f"has {format_bytes(usable)}; give less, or a share such as 50%"
            )
        arguments += ["--memory", str(parsed)]
        usable = parsed
    if share is not None:
        parsed = parse_share_or_bytes(share, "--share", usable)
        if parsed == 0:
            raise InvalidArgumentError("--share: got 0 bytes; leave it out for none")
        if parsed >= usable:
            raise InvalidArgumentError(
                f"--share: got {format_bytes(parsed)}, must be below {format_bytes(usable)}, which "
                "the jobs and the share have together; give less, or a larger --memory"
            )
        arguments += ["--share", str(parsed)]
    print(
        f"starting to serve Node(name={name!r}) as process {os.getpid()}",
        file=sys.stderr,
        flush=True,
    )
    os.execv(program, arguments)
