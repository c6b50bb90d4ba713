"""The tables of docs/ that follow from declarations in the program: options and statistics.

Usage: python tools/reference.py [--fix]     says which page is not as it follows, or rewrites it
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import headrace as hr
from headrace._observe import stats
from headrace._observe.figures import declared
from headrace._options.groups import described, group_forms

DOCS = Path(__file__).parents[1] / "docs"
SECTION = "## Reference\n"
"""Of a page: it is what this program writes."""


def _row(*cells: str) -> str:
    return re.sub(" +", " ", "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _row(*head)
    yield "|" + "---|" * len(head)
    yield from (_row(*row) for row in rows)
    yield ""


def _joined(text: str) -> str:
    return " ".join(text.split())


def _docstrings() -> dict[tuple[str, str], str]:
    """What stands below each key of the TypedDicts of `stats`."""
    found = {}
    for kind in ast.parse(Path(stats.__file__).read_text(encoding="utf-8")).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        for key, text in zip(kind.body, kind.body[1:], strict=False):
            if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr):
                name = ast.unparse(key.target)
                found[kind.name, name] = _joined(ast.literal_eval(text.value))
    return found


def _places(kind: type, at: str = "") -> Iterator[tuple[type, str]]:
    """Each TypedDict in `kind`, and where."""
    yield kind, at
    for each in declared(kind):
        if each.inner is not None:
            yield from _places(each.inner, f"{at}.{each.name}".lstrip(".") + "[]" * each.is_list)


def figures() -> Iterator[str]:
    """Of docs/observe.md."""
    yield from ("Figures of `stats()`; those with a metric are in Prometheus' text, too.", "")
    said = _docstrings()
    places: dict[type, list[str]] = {}
    for kind, place in _places(stats.Stats):
        places.setdefault(kind, []).append(place)
    for kind, paths in places.items():
        where = ", ".join(f"`{path}`" for path in paths if path)
        yield from (f"{where}{': ' * bool(where)}{_joined(kind.__doc__ or '')}", "")
        rows = []
        for each in declared(kind):
            metric = f"`headrace_{each.figure.metric}`" if each.figure.metric else ""
            label = f"`{each.figure.label}`" if each.figure.label else ""
            name = (kind.__name__, each.name)
            text = said.get(name) or stats.METRICS.get(each.figure.metric, ("", ""))[1]
            rows.append((f"`{each.name}`", each.figure.unit, text, metric, label))
        yield from _table(("figure", "unit", "what it is", "metric", "label"), rows)


def _options(of: Any, init: Any) -> Iterator[tuple[str, str, str]]:
    said = described(of)
    for name, each in inspect.signature(init).parameters.items():
        if name == "self":
            continue
        given = "" if each.default is inspect.Parameter.empty else f"`{each.default!r}`"
        yield f"`{name}`", given, said[name]


def options() -> Iterator[str]:
    """Of docs/loader.md."""
    head = ("option", "default", "what it is")
    yield from _table(head, _options(hr.Loader, inspect.unwrap(hr.Loader.__init__)))
    for form, kind in group_forms():
        first = _joined(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0])
        yield from (f"`{form.format('...')}`: {first}", "")
        yield from _table(head, _options(kind, kind))


PAGES = {"loader.md": options, "observe.md": figures}


def written(page: str) -> str:
    """The page as it has to be."""
    before, section, rest = (DOCS / page).read_text(encoding="utf-8").partition(SECTION)
    assert section, f"{page}: no section {SECTION!r}"
    after = "".join(re.split(r"(?m)^(?=## )", rest)[1:])
    return "\n".join((f"{before}{section}", *PAGES[page]())) + after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fix", action="store_true", help="rewrite the pages")
    fix = parser.parse_args().fix
    wrong = [page for page in PAGES if written(page) != (DOCS / page).read_text(encoding="utf-8")]
    for page in wrong:
        if fix:
            (DOCS / page).write_text(written(page), encoding="utf-8")
        print(f"docs/{page}: {'rewritten' if fix else 'not as it follows: run with --fix'}")
    return int(bool(wrong) and not fix)


if __name__ == "__main__":
    sys.exit(main())
