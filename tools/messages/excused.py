"""tools/messages/excused.toml: which messages need no case, no object or no way out, and why; and
tools/messages/open.txt: those which still lack one."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from messages.sites import Site

_HERE = Path(__file__).parent
EXCUSED = _HERE / "excused.toml"
OPEN = _HERE / "open.txt"
LACKS = ("case", "object", "way out")

_HEAD = """\
# Messages that lack something, one a line; `python tools/messages open` writes this file from what
# the last `make test` and `make check` recorded. It is to become shorter: see CONTRIBUTING.md, 6.
"""


@dataclass(frozen=True)
class Excuse:
    """Excuses sites that have all that it names: of `lacks`, why."""

    lacks: frozenset[str]
    because: str
    file: str = ""  # a beginning of the site's file
    function: str = ""
    kind: str = ""
    says: str = ""  # a part of its template

    def covers(self, site: Site, lack: str) -> bool:
        return (
            lack in self.lacks
            and site.file.startswith(self.file)
            and self.function in ("", site.function)
            and self.kind in ("", site.kind)
            and self.says in site.template
        )


def read_excuses(path: Path = EXCUSED) -> list[Excuse]:
    made = []
    for row in tomllib.loads(path.read_text())["excused"]:
        lacks = frozenset([row["lacks"]] if isinstance(row["lacks"], str) else row["lacks"])
        unknown = (lacks - set(LACKS)) | (set(row) - set(Excuse.__dataclass_fields__))
        if unknown or len(row) < 3 or not row["because"].strip():
            raise SystemExit(f"{path.name}: {row}: wrong: {', '.join(unknown) or 'too little'}")
        made.append(Excuse(**{**row, "lacks": lacks}))
    return made


def read_open(path: Path = OPEN) -> set[tuple[str, str]]:
    """Pairs of what lacks and the key of a site."""
    rows = path.read_text().splitlines() if path.is_file() else []
    pairs = (row.split(": ", 1) for row in rows if row and not row.startswith("#"))
    return {(lack, key) for lack, key in pairs}


def write_open(pairs: set[tuple[str, str]], path: Path = OPEN) -> None:
    path.write_text(_HEAD + "".join(f"{lack}: {key}\n" for lack, key in sorted(pairs)))
