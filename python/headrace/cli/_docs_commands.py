"""`headrace docs`: the pages that are installed with the package."""

from __future__ import annotations

import difflib
from importlib import resources
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from headrace.errors import NotFoundError


def _pages() -> dict[str, str]:
    """The text of each page, by name."""
    folder = resources.files("headrace") / "_docs"
    pages = {
        prefix + entry.name.removesuffix(".md"): entry.read_text(encoding="utf-8")
        for prefix in ("", "formats/", "guides/")
        for entry in (folder / prefix if prefix else folder).iterdir()
        if entry.name.endswith(".md")
    }
    return dict(sorted(pages.items()))


def docs(
    page: Annotated[
        str | None, typer.Argument(help="Name of the page; default: list all names.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print the Markdown as it is.")] = False,
) -> None:
    """Print a page of the documentation, or the list of pages.

    Example: [bold]headrace docs loader | less -R[/bold]
    """
    pages = _pages()
    if page is None:
        for name, text in pages.items():
            print(f"{name:<20} {text.partition(chr(10))[0].lstrip('# ')}")
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        near = difflib.get_close_matches(name, pages, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(pages)}"
        raise NotFoundError(f"headrace docs {page}: no such page; {hint}")
    if raw:
        print(pages[name], end="")
    else:
        Console().print(Markdown(pages[name]))
