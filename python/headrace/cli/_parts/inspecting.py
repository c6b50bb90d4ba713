"""Describes a dataset: counts, sizes, blocks, how well its blocks are mixed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from headrace._dataset import Dataset, left_out_of
from headrace._dataset.left_out import others
from headrace._text import one_line, printable
from headrace._units import counted, format_bytes
from headrace.errors import FailedPreconditionError, HeadraceError
from headrace.formats._files.objects import file_count
from headrace.formats._files.stored import describe_field_at
from headrace.formats.pack_format import PARAMETERS, pack_parameters

_BAR_WIDTH = 30
_CLASSES_SHOWN = 10
_SHOWN_MAX = 60  # characters of a value
_LISTED_MAX = 3  # inner lists, or texts of a list


def describe(dataset: Dataset, examples: int = 0) -> dict[str, Any]:
    """Everything `headrace inspect` shows, with so many samples, ready for JSON."""
    index = dataset.index
    fields = []
    for position in dataset.nesting.visible:
        field = index.fields[position]
        entry: dict[str, Any] = {
            "name": field.name,
            "type": describe_field_at(index.fields, dataset.nesting, position),
            "inline": field.is_inline,
            "checksums": field.has_checksums,
        }
        if not field.is_inline:
            entry["bytes"] = _sizes(index.extents(position)[2])
            if (decoded := index.decoded_sizes(position)) is not None:
                entry["decoded_bytes"] = _sizes(decoded)
        elif field.kind != "array":
            entry["bytes"] = _sizes(index.inline_ragged(position)[1])
        fields.append(entry)
    homes = _homes(dataset)
    result: dict[str, Any] = {
        "path": dataset.path,
        "format": dataset.format,
        "samples": len(dataset),
        "files": file_count(index),
        "index_bytes": index.file_bytes,
        "homes": homes,
        "fingerprint": dataset.fingerprint,
        "fields": fields,
        "classes": list(dataset.classes),
        "labels": _label_counts(dataset),
        "examples": _examples(dataset, examples, [home["here"] for home in homes]),
        "blocks": _blocks(dataset),
        "skip": list(dataset.skip),
        "report": report(dataset),
    }
    if (parameters := pack_parameters(index)) is not None:
        result[PARAMETERS] = parameters
    return result


def _label_counts(dataset: Dataset) -> dict[str, int]:
    """Samples of each class name, or label without one; empty if there are no class names."""
    labels = _labels(dataset)
    if labels is None or not dataset.classes:
        return {}
    samples: dict[str, int] = {}
    names = dataset.classes
    numbers, counts = np.unique(labels, return_counts=True)
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        name = names[number] if 0 <= number < len(names) else str(number)
        samples[name] = samples.get(name, 0) + count  # Two classes may have one name.
    return samples


def _homes(dataset: Dataset) -> list[dict[str, Any]]:
    """What lies at each home, and whether that is on this node; empty: the dataset has no homes.

    `fault`: why a home cannot be read although its folder is here; empty: it can.
    """
    index = dataset.index
    try:
        if dataset.homes == 1:
            return []
        table = dataset.home_table
        samples = np.bincount(table.of_samples(), minlength=table.count)
    except FailedPreconditionError:  # An order that needs homes says what is wrong with them.
        return []
    objects = np.array([table.of_object(number) for number in range(index.object_count)])
    sizes = np.array([index.object(number)[1] for number in range(index.object_count)])
    return [
        {
            "samples": int(samples[home]),
            "files": int((objects == home).sum()),
            "bytes": int(sizes[objects == home].sum()),
            "here": here,
            "fault": fault,
        }
        for home, (here, fault) in enumerate(table.present())
    ]


def _examples(dataset: Dataset, count: int, here: list[bool]) -> list[dict[str, Any]]:
    """Some samples, spread over those that are here: their values in short."""
    numbers = others(len(dataset), left_out_of(dataset))
    if not all(here):
        numbers = numbers[np.array(here)[dataset.home_table.of_samples()][numbers]]
    chosen = [int(numbers[at]) for at in spread(len(numbers), count)]
    examples = []
    for number in chosen:
        try:
            values = {name: _brief(value) for name, value in dataset[number].items()}
        except HeadraceError as error:
            values = {"error": one_line(str(error))}
        examples.append({"sample": number, "values": values})
    return examples


def spread(samples: int, count: int) -> list[int]:
    """Up to `count` numbers below `samples`, evenly spaced."""
    numbers = np.linspace(0, samples - 1, min(samples, count)).astype(np.int64)
    return [int(number) for number in np.unique(numbers)]


def _brief(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, str):
        text = printable(one_line(value))
        shown = text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
        return json.dumps(shown, ensure_ascii=False)
    if isinstance(value, list):
        more = ", ..." if len(value) > _LISTED_MAX else ""
        return f"[{', '.join(map(_brief, value[:_LISTED_MAX]))}{more}] ({len(value):,})"
    array = np.asarray(value)
    if array.ndim == 0:
        return str(array.item())
    numbers = ", ".join(str(element.item()) for element in array.reshape(-1)[:4])
    more = ", ..." if array.size > 4 else ""
    return f"{array.dtype}{list(array.shape)} ({numbers}{more})"


def report(dataset: Dataset) -> list[dict[str, Any]]:
    """The findings of indexing, ready for JSON."""
    return [
        {"kind": finding.kind, "count": finding.count, "examples": list(finding.examples)}
        for finding in dataset.report
    ]


def _sizes(sizes: np.ndarray) -> dict[str, Any]:
    """Total, quantiles, and a histogram in steps of one doubling."""
    quantiles = np.quantile(sizes, [0, 0.5, 0.99, 1]).tolist() if len(sizes) else [0, 0, 0, 0]
    exponents = np.frexp(sizes.astype(np.float64))[1]
    values, counts = np.unique(exponents, return_counts=True)
    return {
        "total": int(sizes.sum()),
        "min": int(quantiles[0]),
        "median": int(quantiles[1]),
        "p99": int(quantiles[2]),
        "max": int(quantiles[3]),
        "histogram": [
            {"below": 2 ** int(value), "samples": int(count)}
            for value, count in zip(values, counts, strict=True)
        ],
    }


def _blocks(dataset: Dataset) -> dict[str, Any] | None:
    index = dataset.index
    if index.block_count == 0:
        return None
    first_samples, counts, _, _, sizes, _ = index.blocks()
    result: dict[str, Any] = {
        "count": index.block_count,
        "samples_mean": float(counts.mean()),
        "samples_max": int(counts.max()),
        "bytes_mean": float(sizes.mean()),
        "bytes_max": int(sizes.max()),
    }
    labels = _labels(dataset)
    if labels is not None:
        labels = np.unique(labels, return_inverse=True)[1]
        # The share of a block that has its most frequent label: 1 if a block is one class. If
        # its samples are random it is near `label_share_random`, that of blocks of as many
        # samples, dealt at random.
        result["label_share"] = _label_share(labels, first_samples, counts)
        shuffled = np.random.Generator(np.random.PCG64(0)).permutation(labels)
        result["label_share_random"] = _label_share(shuffled, first_samples, counts)
    return result


def _labels(dataset: Dataset) -> np.ndarray | None:
    for position, field in enumerate(dataset.index.fields):
        is_number = field.kind == "array" and field.shape == ()
        if field.name == "label" and field.is_inline and is_number:
            return dataset.index.inline_values(position)
    return None


def _label_share(labels: np.ndarray, first_samples: np.ndarray, counts: np.ndarray) -> float:
    total = 0
    for first, count in zip(first_samples.tolist(), counts.tolist(), strict=True):
        total += int(np.bincount(labels[first : first + count]).max())
    return total / len(labels)


def print_description(description: dict[str, Any]) -> None:
    console = Console(highlight=False, markup=False)
    table = Table.grid(padding=(0, 2))
    table.add_row("path", description["path"])
    table.add_row("format", description["format"])
    table.add_row("samples", f"{description['samples']:,}")
    table.add_row("files", f"{description['files']:,}")
    table.add_row("index", format_bytes(description["index_bytes"]))
    for number, home in enumerate(description["homes"]):
        here = home["fault"] or ("here" if home["here"] else "not on this node")
        table.add_row(
            f"home {number}",
            f"{counted(home['samples'], 'sample')}, {format_bytes(home['bytes'])} in "
            f"{counted(home['files'], 'file')}; {printable(one_line(here))}",
        )
    table.add_row("fingerprint", description["fingerprint"])
    if classes := description["classes"]:
        shown = ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")
        table.add_row("classes", f"{len(classes):,}: {printable(one_line(shown))}")
    if labels := description["labels"]:
        most = max(labels.values())
        for name, count in list(labels.items())[:_CLASSES_SHOWN]:
            bar = "█" * max(1, round(_BAR_WIDTH * count / most))
            table.add_row("", f"{printable(one_line(name))[:14]:>14}  {bar} {count:,}")
        if len(labels) > _CLASSES_SHOWN:
            least = min(labels.values())
            table.add_row("", f"{'...':>14}  {least:,} to {most:,} samples a class")
    if pack := description.get(PARAMETERS):
        seed = f", seed {pack['seed']}" if pack["order"] == "shuffled" else ""
        table.add_row("order", pack["order"] + seed)
    if blocks := description["blocks"]:
        table.add_row(
            "blocks",
            f"{blocks['count']:,}, of {blocks['samples_mean']:.1f} samples and "
            f"{format_bytes(blocks['bytes_mean'])} on average",
        )
        if "label_share" in blocks:
            table.add_row(
                "block mates",
                f"{blocks['label_share']:.1%} of a block is its most frequent label "
                f"({blocks['label_share_random']:.1%} if dealt at random)",
            )
    for field in description["fields"]:
        checked = ", checksums" if field["checksums"] else ""
        table.add_row(printable(one_line(f"field {field['name']}")), field["type"] + checked)
        if "bytes" in field:
            sizes = field["bytes"]
            table.add_row(
                "",
                f"{format_bytes(sizes['total'])} in all; a sample {format_bytes(sizes['min'])} to "
                f"{format_bytes(sizes['max'])}, median {format_bytes(sizes['median'])}",
            )
            _add_histogram(table, sizes["histogram"])
    for sample in description["examples"]:
        shown = ", ".join(f"{name}: {value}" for name, value in sample["values"].items())
        table.add_row(f"sample {sample['sample']}", printable(one_line(shown)))
    console.print(table, soft_wrap=True)


def _add_histogram(table: Table, histogram: list[dict[str, int]]) -> None:
    most = max((entry["samples"] for entry in histogram), default=1)
    for entry in histogram:
        bar = "█" * max(1, round(_BAR_WIDTH * entry["samples"] / most))
        table.add_row("", f"{'< ' + format_bytes(entry['below']):>14}  {bar} {entry['samples']:,}")
