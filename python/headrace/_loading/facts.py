"""What is known of a loader: for advice, for sentences, for a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import _core
from headrace import _html as html
from headrace._dataset import Dataset, epoch_samples
from headrace._loading.feed import EpochFeed
from headrace._loading.options import EPOCHS_MAX, Resolved
from headrace._observe.account import LoaderFacts
from headrace._observe.advice import DataFacts
from headrace._observe.readable import waits_html
from headrace._units import counted
from headrace.formats._files.nested import Nesting


def facts_of(feed: EpochFeed, origins: Mapping[str, tuple[int | str, str]]) -> LoaderFacts:
    """`origins`: value and origin of each parameter of the order."""
    options, delivers, at = feed.options, feed.delivers, feed.cursor.at
    is_sampled = feed.source is not None
    nesting = Nesting([name for name, *_ in delivers.schema])
    place = feed.order.place
    return LoaderFacts(
        path=feed.dataset.path,
        format=feed.dataset.format,
        samples=epoch_samples(feed.dataset),
        schema=[delivers.schema[position] for position in nesting.visible],
        python=delivers.python,
        batch_size=options.batch_size,
        steps=feed.cursor.length(at.plan) if at.plan is not None or not is_sampled else None,
        epochs=options.epochs if options.epochs < EPOCHS_MAX else None,
        rank=options.rank,
        world_size=options.world_size,
        engine_ranks=0 if place is None else place.local_world_size,
        order=options.order.name,
        origins={} if is_sampled else origins,
        inflation=None if is_sampled else feed.order.expected_inflation,
        seed=options.seed,
        shuffle=options.shuffle,
        drop_last=options.drop_last,
        sampler=is_sampled,
        placement=options.placement,
        epoch=at.epoch,
        step=at.step,
    )


def loader_html(facts: LoaderFacts, stats: Mapping[str, Any]) -> html.Html:
    """What it delivers, where it is, and who waited for what."""
    fields = ", ".join(name for name, *_ in facts.schema)
    order = "of a sampler" if facts.sampler else f"{facts.order}, seed {facts.seed}"
    rows = [
        ("dataset", f"{facts.path} ({counted(facts.samples, 'sample')})"),
        ("batch", f"{counted(facts.batch_size, 'sample')}: {fields}"),
        ("order", order),
        ("position", _position(facts)),
    ]
    if facts.world_size > 1:
        rows.insert(3, ("rank", f"{facts.rank} of {facts.world_size}"))
    rate = stats["samples_per_second"]
    if stats["samples"]:
        rows.append(("delivered", f"{counted(stats['samples'], 'sample')}, {rate:,.0f} a second"))
    return html.block(
        html.title("headrace.Loader"),
        html.table(rows),
        html.paragraph(stats["verdict"]),
        waits_html(stats),
    )


def _position(facts: LoaderFacts) -> html.Html:
    if not facts.steps:
        return html.text(f"epoch {facts.epoch}, step {facts.step}")
    done = html.BarPart("taken", facts.step / facts.steps, "rgba(128,128,128,0.7)")
    text = f"epoch {facts.epoch}, step {facts.step:,} of {facts.steps:,}"
    return html.joined(text, html.bar([done], text))


def data_facts(dataset: Dataset, resolved: Resolved) -> DataFacts:
    """Of the fields delivered, and what is done with them."""
    fields, native, python = resolved.kinds, resolved.native, resolved.python
    stored = [
        field for field in dataset.index.fields if field.name in fields and not field.is_inline
    ]
    layout = "blocks" if dataset.index.block_count else "ranges"
    if dataset.format_row.file_a_sample:
        layout = "files"
    decoded: set[str] = set()
    if isinstance(native, Mapping):
        decoded = set(native)
    elif native is not None:
        decoded = {field.name for field in stored if field.kind == "image"}
    if resolved.options.on_error is _core.OnError.SUBSTITUTE and python is not None:
        decoded.update(python.decoded)  # Before they go to workers, which cannot substitute.
    return DataFacts(
        fields=len(fields),
        stored=len(stored),
        images=sum(field.name in decoded for field in stored),
        layout=layout,
        sampler=resolved.source is not None,
        workers=python.workers if python is not None else None,
    )
