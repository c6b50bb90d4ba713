"""Writes a profile as TOML, with comments that explain it."""

from __future__ import annotations

from typing import Any

_HEAD = """\
A machine profile of headrace, made by `headrace profile`; `headrace docs model` explains it.

Rates are bytes a second of all users together, medians of some short slices. `spread` is
(largest - smallest slice) / median: a rate with a spread of 0.5 is known to about a quarter."""

_COMMENTS = {
    "host": "Where it was measured.",
    "dataset": "What was read: rates of storage and decode are of it, on this file system.",
    "storage": "Cold random reads, by size and by how many are in flight. `cold_share`: bytes of\n"
    "devices / bytes read; far below 1, a cache answered.",
    "copy": "From memory to memory, by threads.",
    "decode": "From stored bytes to rows of a batch, by threads.",
    "tier": "A folder that may hold copies: reads and writes by size and threads.",
    "preprocess": "What loaders saw one sample take on one of so many threads; `transform` is a\n"
    "hash of the fields and the transform.",
    "peers": "From other nodes, samples of any size. Not measured: written by hand.",
    "link": "Samples from other nodes' memory, by size and by how many were asked for at once.",
}


def to_toml(plain: dict[str, Any]) -> str:
    """A document of tables, tables in them, and lists of tables."""
    import tomlkit  # takes 30 ms; only who writes a profile waits for it

    document = tomlkit.document()

    def comment(text: str) -> None:
        for line in text.splitlines():
            document.add(tomlkit.comment(line) if line else tomlkit.ws("#\n"))

    comment(_HEAD)
    document.add(tomlkit.nl())
    for key, value in plain.items():
        if key in _COMMENTS:
            document.add(tomlkit.nl())
            comment(_COMMENTS[key])
            document.add(tomlkit.ws(""))  # or a blank line parts the comment from its table
        document.add(key, value)
    return tomlkit.dumps(document)
