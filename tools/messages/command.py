"""Lists every place that makes an error, and checks that tests have seen its message.

Usage: python tools/messages list [TEXT]   each place: file:line, its kind, what tests saw, its text
       python tools/messages check         fails where a message has no case, names no object or no
                                           way out, and neither excused.toml nor open.txt says so
       python tools/messages open          writes open.txt anew

All read what the last `make test` and `make check` left in build/messages/. A message counts as
seen if a test made it, or has its text; the place of one of the core is known by its text alone.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

from messages import excused
from messages.core_sites import core_sites
from messages.judge import names_object, names_way_out
from messages.python_sites import python_sites
from messages.records import RECORDED, Seen, named_by_tests, seen
from messages.sites import Site

_SHOWN = 120  # characters of a message


def lacks(site: Site, found: Seen) -> Iterator[tuple[str, str]]:
    """What the site lacks, with a message that shows it."""
    if not found.has(site):
        yield "case", site.template
    texts: list[str | None] = [*found.texts.get(site.key, ())] or [None]
    for lack, named in (("object", names_object), ("way out", names_way_out)):
        wrong = [text for text in texts if not named(site, text)]
        if wrong:
            yield lack, wrong[0] or site.template


def all_lacks(
    sites: list[Site], found: Seen, excuses: list[excused.Excuse]
) -> dict[tuple[str, str], tuple[Site, str]]:
    """Without those that are excused."""
    return {
        (lack, site.key): (site, text)
        for site in sites
        for lack, text in lacks(site, found)
        if not any(excuse.covers(site, lack) for excuse in excuses)
    }


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in ("list", "check", "open"):
        print(__doc__, file=sys.stderr)
        return 2
    if not any(RECORDED.glob("*.json")) and arguments[0] != "list":
        print("build/messages has nothing: run make test and make check first", file=sys.stderr)
        return 2
    python, core = python_sites(), core_sites()
    found = seen(python, core)
    found.named = named_by_tests(python + core)
    if arguments[0] == "list":
        _print_list(python + core, found, " ".join(arguments[1:]))
        return 0
    lacking = all_lacks(python + core, found, excused.read_excuses())
    if arguments[0] == "open":
        excused.write_open(set(lacking))
        return 0
    return _check(python, core, found, lacking)


def _print_list(sites: list[Site], found: Seen, part: str) -> None:
    for site in sites:
        how = "made" if found.texts.get(site.key) else "named" if found.has(site) else "-"
        if part in site.key:
            print(f"{site.place}: {site.kind}: {how}: {site.template}")


def _check(
    python: list[Site],
    core: list[Site],
    found: Seen,
    lacking: dict[tuple[str, str], tuple[Site, str]],
) -> int:
    known = excused.read_open()
    new = {pair: each for pair, each in lacking.items() if pair not in known}
    for (lack, _), (site, text) in sorted(new.items(), key=lambda each: each[1][0].place):
        print(f"{site.place}: {site.kind}: no {lack}: {text[:_SHOWN]}")
    if found.changed:
        names = ", ".join(sorted(found.changed))
        print(f"changed since tests ran, so known by text alone: {names}")
    for name, sites in (("Python", python), ("core", core)):
        made = sum(bool(found.texts.get(site.key)) for site in sites)
        named = sum(found.has(site) for site in sites) - made
        print(f"{name}: {len(sites)} places, {made} made by tests, {named} in a test's text")
    counts = Counter(lack for lack, _ in known & set(lacking))
    open_now = ", ".join(f"{counts[lack]} no {lack} yet" for lack in excused.LACKS)
    gone = len(known - set(lacking))
    print(
        f"open.txt: {open_now}; {gone} of its lines are done or gone" + ", see `open`" * bool(gone)
    )
    if new:
        print(
            f"{len(new)} messages lack something: give each a test, an object and a way out, or"
            " a reason in tools/messages/excused.toml"
        )
    return 1 if new else 0
