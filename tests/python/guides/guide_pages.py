"""The blocks of docs/guides/, and comparison of what a command printed with what its page shows.

    ```python      a first line `# NAME.py`: the file of that name; `# A NAME`: code of that package
    ```console     lines `$ COMMAND`, each with its output below it
    ```text        shown only

In outputs `...` stands for anything, and `/data` for the folder of the page's files. Losses are
compared with a tolerance, and of a verdict only that it is one: its numbers are of the machine.
"""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
HOME = "/data"
_LOSS_TOLERANCE = 0.25
_LOSS = re.compile(r"(?<=loss )\d+\.\d+")
_VERDICT = re.compile(r"rank \d+ (?:is not waiting:|waited \d+ %) .*")


@dataclass
class Code:
    """A block of Python."""

    title: str  # the first line, without `# `; empty if it is no comment
    text: str
    line: int  # in the page, of its first line

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        return self.title if re.fullmatch(r"\w+\.py", self.title) else None


@dataclass
class Command:
    """A line of a console, and what the page shows below it."""

    words: list[str]
    line: int
    output: list[str] = field(default_factory=list)


def blocks(name: str) -> list[Code | Command]:
    """All of a page, in its order."""
    found: list[Code | Command] = []
    text = (GUIDES / name).read_text()
    for fence in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        kind, body = fence.groups()
        line = text.count("\n", 0, fence.start()) + 2
        if kind == "python":
            ast.parse(body)
            first = body.partition("\n")[0]
            found.append(Code(first[2:] if first.startswith("# ") else "", body, line))
        elif kind == "console":
            found += _commands(body, line)
        else:
            assert kind == "text", f"{name}:{line - 1}: a block of kind {kind!r}"
    assert found, name
    assert text.count("```") == 2 * len(re.findall(r"^```\w+$", text, re.MULTILINE)), name
    return found


def _commands(body: str, line: int) -> list[Command]:
    found: list[Command] = []
    for number, text in enumerate(body.splitlines(), line):
        if text.startswith("$ "):
            found.append(Command(shlex.split(text[2:]), number))
        else:
            found[-1].output.append(text)
    return found


def difference(shown: list[str], printed: str, folder: Path) -> str | None:
    """Where an output is not as the page shows it; None if it is."""
    got = [line.rstrip() for line in printed.replace(str(folder), HOME).splitlines()]
    want = [line.rstrip() for line in shown]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else _line(line) for line in want)
    text = "".join(f"{_VERDICT.sub('VERDICT', line)}\n" for line in got)
    match = re.fullmatch(pattern, text)
    if match is None:
        return "\n".join(["the page shows:", *want, "the command printed:", *got])
    losses = [loss for line in want for loss in _LOSS.findall(line)]
    for loss, found in zip(losses, match.groups(), strict=True):
        if abs(float(loss) - float(found)) > _LOSS_TOLERANCE * max(float(loss), 0.1):
            return f"the page shows a loss of {loss}, the command printed {found}"
    return None


def _line(shown: str) -> str:
    parts = []
    for part in re.split(f"(\\.\\.\\.|{_LOSS.pattern})", _VERDICT.sub("VERDICT", shown)):
        if part == "...":
            parts.append(".*")
        elif re.fullmatch(r"\d+\.\d+", part) and parts and parts[-1].endswith("loss\\ "):
            parts.append(r"(\d+\.\d+)")
        else:
            parts.append(re.escape(part))
    return "".join(parts) + "\n"
