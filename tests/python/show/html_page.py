"""Reads HTML as strictly as a test may wish: what a notebook shows, and what it must not hold."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"img"}
PLAIN = {
    "div",
    "span",
    "table",
    "tbody",
    "tr",
    "th",
    "td",
    "ul",
    "li",
    "figure",
    "figcaption",
    "img",
}
ATTRIBUTES = {"style", "title", "role", "aria-label", "scope", "src", "alt", "width", "height"}


class Page(HTMLParser):
    """A fragment: texts, images, widths of bars' parts; AssertionError if it is wrong."""

    def __init__(self, fragment: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.images: list[dict[str, str]] = []
        self.bars: list[str] = []
        self.widths: list[float] = []
        self.styles: list[str] = []
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in PLAIN, f"<{tag}>"
        given = {name: value or "" for name, value in attrs}
        assert given.keys() <= ATTRIBUTES, given
        style = given.get("style", "")
        assert "url(" not in style
        self.styles.append(style)
        if tag == "img":
            self.images.append(given)
        if given.get("role") == "img":
            self.bars.append(given["aria-label"])
        if "title" in given:
            self.widths.append(float(style.split("width:")[1].split("%")[0]))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> without its begin"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(self.texts)
