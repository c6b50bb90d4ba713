"""HTML: fragments that a notebook or any page may contain, and whole pages of them.

They have no script and no style sheet. Text is escaped. Text and background keep the page's own
colours, so that a fragment is readable in a dark and in a light theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace._text import one_line, printable

_LINE = "1px solid rgba(128,128,128,0.35)"
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


class Html(str):
    """A finished fragment, as opposed to text, which is escaped."""

    __slots__ = ()


class BarPart(NamedTuple):
    """A part of a bar."""

    name: str
    share: float
    """of the whole bar, 0 to 1"""
    colour: str


def text(value: object) -> Html:
    """A value as text. A name of a file may have any characters: those that cannot be seen are
    shown by their numbers."""
    from html import escape  # It takes long to import.

    if isinstance(value, Html):
        return value
    return Html(escape(printable(one_line(str(value)))))


def joined(*parts: str) -> Html:
    """Fragments and texts, one after the other."""
    return Html("".join(map(text, parts)))


def block(*parts: str) -> Html:
    """A fragment for a notebook's cell."""
    style = "font-size:90%;line-height:1.5;max-width:60em;margin-bottom:8px"
    return Html(f'<div style="{style}">{joined(*parts)}</div>')


def title(name: str) -> Html:
    return Html(f'<div style="font-weight:600">{text(name)}</div>')


def paragraph(content: str) -> Html:
    return Html(f'<div style="margin:4px 0">{text(content)}</div>')


def listed(items: Iterable[str]) -> Html:
    inside = "".join(f"<li>{text(item)}</li>" for item in items)
    return Html(f'<ul style="margin:4px 0;padding-left:1.5em">{inside}</ul>')


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> Html:
    """Rows of texts or fragments. Without `head` the first cell of each row is its heading."""
    top = "".join(
        f'<th scope="col" style="{_CELL};border-bottom:{_LINE}">{text(name)}</th>' for name in head
    )
    lines = [f"<tr>{top}</tr>"] if head else []
    for row in rows:
        cells = [f'<td style="{_CELL}">{text(cell)}</td>' for cell in row]
        if not head:
            cells[0] = f'<th scope="row" style="{_CELL};font-weight:600">{text(row[0])}</th>'
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return Html(
        '<table style="border-collapse:collapse;margin:4px 0;background:none">'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def bar(parts: Sequence[BarPart], what: str) -> Html:
    """A stacked bar. `what`: what it shows, for those who cannot see it."""
    shown = [part for part in parts if part.share > 0]
    shares = ", ".join(f"{part.name} {part.share:.1%}" for part in shown)
    pieces = "".join(
        f'<div title="{text(f"{part.name} {part.share:.1%}")}" '
        f'style="width:{min(part.share, 1):.3%};background:{part.colour}"></div>'
        for part in shown
    )
    return Html(
        f'<div role="img" aria-label="{text(f"{what}: {shares}")}" style="display:flex;width:26em;'
        f'height:1em;border:{_LINE};overflow:hidden">{pieces}</div>'
    )


def legend(parts: Sequence[BarPart]) -> Html:
    """The names of a bar's colours."""
    names = "".join(
        '<span style="white-space:nowrap;margin-right:1em"><span style="display:inline-block;'
        f'width:0.8em;height:0.8em;margin-right:0.3em;background:{part.colour}"></span>'
        f"{text(part.name)}</span>"
        for part in parts
    )
    return Html(f'<div style="margin:2px 0">{names}</div>')


def picture(address: str, width: int, height: int, caption: str) -> Html:
    """An image by its data address, in pixels of the page."""
    return Html(
        '<figure style="display:inline-block;margin:0 8px 8px 0;text-align:center">'
        f'<img src="{text(address)}" width="{width}" height="{height}" alt="{text(caption)}" '
        'style="image-rendering:pixelated;display:block;margin:0 auto">'
        f'<figcaption style="font-size:85%">{text(caption)}</figcaption></figure>'
    )


def chart(address: str, caption: str) -> Html:
    """A drawing by its data address, as wide as the page lets it be."""
    return Html(
        '<figure style="margin:1em 0">'
        f'<img src="{text(address)}" alt="{text(caption)}" style="max-width:100%;background:#fff">'
        f'<figcaption style="font-size:85%">{text(caption)}</figcaption></figure>'
    )


def page(name: str, *parts: str) -> str:
    """A whole file that needs no other."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{text(name)}</title></head>\n"
        '<body style="font-family:sans-serif;max-width:75em;margin:1em auto;padding:0 1em">\n'
        f"{joined(*parts)}\n</body></html>\n"
    )
