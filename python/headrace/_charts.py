"""Shared by all charts: matplotlib, if installed, and checks of the output file."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from headrace._text import os_reason
from headrace.errors import InvalidArgumentError, NotFoundError

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#E69F00", "#56B4E9", "#F0E442", "#8A8A8A"),
)
"""Told apart by the colour-blind, too (Okabe and Ito). The first four are those of waits: storage,
decode, consumer, ranks."""
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def matplotlib(what: str) -> tuple[Any, Any]:
    """(rc_context, Figure); ImportError with the remedy, for `what`."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError(f"{what} needs {error.name}: pip install 'headrace[plot]'") from error
    return rc_context, Figure


def check(path: Path, what: str) -> None:
    """Checks that a chart can be drawn there, before long work."""
    _, figure_class = matplotlib(what)
    formats = figure_class().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise InvalidArgumentError(
            f"writing the chart {path}: no format {path.suffix!r}; give it the ending of one of "
            + ", ".join(sorted(formats))
        )
    check_place(path, "chart")


def check_place(path: Path, kind: str) -> None:
    """Checks that there may be a file, before long work."""
    if path.is_dir():
        raise InvalidArgumentError(f"writing the {kind} {path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise NotFoundError(f"writing the {kind} {path}: no such folder {path.parent}")


def svg_address(figure: Any) -> str:
    """The figure as a data address, for a page. The same figure gives the same address."""
    rc_context, _ = matplotlib("a page")
    drawn = io.BytesIO()
    with rc_context({"svg.hashsalt": "headrace"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.getvalue()).decode()


def save(figure: Any, path: Path) -> None:
    """Writes it; an OSError names the chart."""
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise OSError(f"writing the chart {path}: {os_reason(error)}") from error
