"""Writes the files that follow from the built extension: its stub, and the names in its tables.

Usage: python tools/make_stub.py [--check]     --check: writes nothing; exits 1 if one differs
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from nanobind.stubgen import StubGen  # type: ignore[import-untyped]

from headrace import _core

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "headrace"

HEAD = '''\
"""The names in the tables of the extension, for type checkers. `make stub` writes this file."""

from typing import Literal

'''


def stub() -> str:
    generator = StubGen(_core)
    generator.put(_core)
    return str(generator.get())


def literal(name: str, values: Iterable[str]) -> str:
    lines = "".join(f'    "{value}",\n' for value in values)
    return f"{name} = Literal[\n{lines}]\n"


def names() -> str:
    return HEAD + "".join(
        (
            literal("OrderName", _core.order_names()),
            literal("Placement", _core.placements()),
            literal("Io", _core.stores()),
        )
    )


def main() -> int:
    differ = False
    for file, text in (("_core.pyi", stub()), ("_names.py", names())):
        path = PACKAGE / file
        if path.exists() and path.read_text() == text:
            continue
        differ = True
        if "--check" in sys.argv:
            print(f"{path}: differs from the extension; run `make stub` and read the difference")
        else:
            path.write_text(text)
    return int(differ and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
