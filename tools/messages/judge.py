"""Whether a message names its object and a way out, by its form.

The forms are those of this project: "got X, must be Y", "there are A, B", "CAUSE; do this",
"CAUSE: do this". A verb that no list has yet is a line here.
"""

from __future__ import annotations

import re

from messages.sites import HOLE, Site

# What a user can do, as the first word of a clause.
VERBS = (
    "add|allow|ask|begin|build|call|change|check|choose|chmod|clear|close|compare|connect|convert|copy|correct|create"
    "|cut(?! short)|decode|delete|divide|do|download|drop|encode|end|export|fill|filter|find|fix"
    "|flatten|free|give|go|hold|import|index|install|iterate|keep|leave|let|list|load|lower|make|measure|mount|move|name"
    "|number|open|pack|pad|pass|pip|pull|put|quote|raise|read|rebuild|remove|rename|repair|replace|report"
    "|resample|reset|resize|restart|restore|rewrite|run|save|say|see|select|send|set|shorten"
    "|shuffle|skip|sort|split|start|stop|store|take|tell|try|unpack|unset|update|upgrade|use|wait|widen"
    "|wrap|write"
)

_WAY_OUT = re.compile(
    r"\b(?:must|may be|may have|needs?|expected|there (?:are|is)(?! no\b)|it has|has only|have only"
    r"|did you mean|one of|at most|at least|only .{1,40} (?:is|are) (?:read|decoded|known)"
    r"|limit(?:ed)?|can be|(?:the|a|this) \w+ has|wanted are|this headrace reads|give either)\b"
    r"|(?:[;:,.(]|\band|\bor|\bthen)\s*[`'\"(]*(?:first |please |either |only |do not |never )?"
    rf"(?:{VERBS})\b"
    r"|\bheadrace (?:index|top|pack|plan|profile|docs|verify)\b"
    r"|numbered from|\bis needed|pip install|\(ulimit",
    re.IGNORECASE,
)
_CODES = {"InvalidArgument", "DeadlineExceeded", "NotFound", "ResourceExhausted", "OutOfRange"}
_CODES |= {"FailedPrecondition", "Internal", "Unavailable", "DataLoss", "Cancelled"}
_OBJECT = re.compile(
    r"""\w=|['"`]|\d|\w\.\w|--\w|/|\b[a-z]+_[a-z_]+|\b[A-Z]\w+[A-Z]|:"""
    r"|\bthe (?:loader|stream|dataset)\b"
)


def names_object(site: Site, text: str | None) -> bool:
    """A value, or the name of what is wrong. What a test has not shown is taken for right."""
    return HOLE in site.template or text is None or _OBJECT.search(text) is not None


def _is_whole(site: Site) -> bool:
    """Whether the place makes the error itself, not a function that adds text."""
    of_python = site.file.endswith(".py")
    return site.kind in _CODES or (of_python and site.kind.endswith("Error"))


def names_way_out(site: Site, text: str | None) -> bool:
    if text is None and (site.template.endswith(HOLE) or not _is_whole(site)):
        return True  # Where text of another place may say it; a test shows whether it does.
    if text is None:
        text = site.template
    return _WAY_OUT.search(text) is not None
