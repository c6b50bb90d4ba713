"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.errors import InvalidArgumentError
from headrace.formats import table


def split_tier(text: str) -> tuple[str, str]:
    """Name and capacity of a `--tier`: "ram", or a folder.

    Raises: InvalidArgumentError: one of them is missing.
    """
    name, _, capacity = text.rpartition("=")
    if not name or not capacity:
        raise InvalidArgumentError(
            f'--tier: got "{text}", must be NAME=CAPACITY, as ram=32GB or /nvme/cache=1TB'
        )
    return name, capacity


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
# Paths are str: Path would turn an empty one into ".", the current folder.
DatasetPath = Annotated[
    str,
    typer.Argument(
        help="A folder of class folders, a pack, an index file (.hri), or another known format."
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads; default: two for each core, at most 8.")
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        "--skip",
        metavar="PATTERN",
        help="Leave files and folders out: '*.webp', 'src', '/ant/x.jpg', or a kind, as "
        "':undecodable'; or what '@FILE' of --failures lists; may be repeated.",
    ),
]
Decode = Annotated[
    bool, typer.Option("--decode", help="Read and decode every sample, on all cores.")
]
Failures = Annotated[
    str | None,
    typer.Option(
        "--failures",
        metavar="FILE",
        help="Write the samples that --decode cannot read or decode into this file, for "
        "--skip @FILE.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The format of the data: "
        + ", ".join(row.name for row in table.FORMATS if row.option_names())
        + "; default: as it is recognised. `headrace docs` lists the page of each.",
    ),
]
FormatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the format, as window=1024 or columns=image,label; other values are "
        "JSON; may be repeated.",
    ),
]
SplitName = Annotated[
    str | None,
    typer.Option("--split", help="The part to open of a folder of several, as train."),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ray",
        help="ray: by tasks of the Ray cluster of RAY_ADDRESS, or of this machine.",
    ),
]
OtherMachines = Annotated[
    list[str] | None, typer.Option("--node", help="Also the loaders of this machine; repeat it.")
]
WholeJob = Annotated[
    bool, typer.Option("--job", help="Also all machines of the jobs whose loaders are here.")
]
Via = Annotated[
    str, typer.Option(help="What runs a command on the machine {node}; 'headrace' follows.")
]
