"""A dataset in a shell, and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from headrace import _core
from headrace import _html as html
from headrace._units import counted
from headrace.formats._base.findings import Finding
from headrace.formats._files.nested import Nesting
from headrace.formats._files.stored import describe_field_at

_CLASSES_MAX = 12


class FieldFacts(NamedTuple):
    """A field of a dataset."""

    name: str
    what: str
    place: str


class DatasetFacts(NamedTuple):
    """What is known of a dataset without reading it."""

    path: str
    format: str
    samples: int
    classes: Sequence[str]
    blocks: int
    fields: Sequence[FieldFacts]
    findings: Sequence[Finding]

    @classmethod
    def of(
        cls,
        index: _core.Index,
        nesting: Nesting,
        path: str,
        format: str,
        classes: Sequence[str],
        findings: Sequence[Finding],
    ) -> Self:
        fields = index.fields
        facts = [
            FieldFacts(
                fields[at].name,
                describe_field_at(fields, nesting, at),
                "in the index" if fields[at].is_inline else "on storage",
            )
            for at in nesting.visible
        ]
        return cls(path, format, index.sample_count, classes, index.block_count, facts, findings)


def dataset_line(facts: DatasetFacts) -> str:
    """The dataset in one line."""
    fields = ", ".join(f"{field.name}: {field.what}" for field in facts.fields)
    count = len(facts.classes)
    classes = f", {counted(count, 'class', 'classes')}" if count else ""
    blocks = f", {counted(facts.blocks, 'block')}" if facts.blocks else ""
    return (
        f"<headrace.Dataset {facts.path!r} ({facts.format}): {counted(facts.samples, 'sample')}"
        f"{classes}{blocks}; {fields}; look at one with .read(i)>"
    )


def dataset_html(facts: DatasetFacts) -> html.Html:
    """The dataset as a notebook shows it."""
    rows = [("path", facts.path), ("format", facts.format), ("samples", f"{facts.samples:,}")]
    if facts.classes:
        names = ", ".join(facts.classes[:_CLASSES_MAX])
        more = ", ..." if len(facts.classes) > _CLASSES_MAX else ""
        rows.append(("classes", f"{len(facts.classes):,}: {names}{more}"))
    if facts.blocks:
        rows.append(("blocks", f"{facts.blocks:,}, each read at once"))
    paragraphs = [html.paragraph(f"Found: {finding}") for finding in facts.findings]
    return html.block(
        html.title("headrace.Dataset"),
        html.table(rows),
        html.table(facts.fields, head=("field", "of a sample", "where it lies")),
        *paragraphs,
        html.paragraph("Look at one sample with .read(i), at some with headrace.show(dataset)."),
    )
