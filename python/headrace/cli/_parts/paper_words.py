"""A paper's words for the parameters of its order, in `--set` of `headrace order` and `plan`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from headrace import _core
from headrace._arguments import integer
from headrace._dataset import Dataset
from headrace._units import parse_bytes
from headrace.cli._parts.job import JobOptions
from headrace.cli._parts.orders import Source, make_source, order_values, parse_settings
from headrace.errors import InvalidArgumentError
from headrace.orders import as_order, chunks_of_slots, core_order, order_class

Job = TypeVar("Job", bound=JobOptions)
_BLOCK_SAMPLES, _CHUNKS = "block_samples", "chunks_per_virtual"


def planned_order(job: JobOptions, dataset: Dataset) -> _core.OrderSpec:
    """The order of a job with this dataset."""
    job = with_blocks(job)
    if job.settings:
        job = with_parameters(job, make_source(dataset, None, job.block_samples))
    parameters = parse_settings(job.settings)
    if job.block_samples is not None:
        parameters["block_samples"] = str(job.block_samples)
    spec = core_order(as_order(job.order), dataset)
    return spec.with_parameters(order_values(parameters))


def with_blocks(job: Job) -> Job:
    """The job with --block-samples, if one of the words sets them."""
    words = _words(job.order)
    settings = parse_settings(job.settings)
    word = next((name for name in settings if words.get(name, name) == _BLOCK_SAMPLES), None)
    if word is None:
        return job
    value = settings.pop(word)
    if job.block_samples is not None:
        raise InvalidArgumentError(
            f"--set {word}={value}: is --block-samples, which is given as {job.block_samples}; "
            "give one of the two"
        )
    samples = integer(f"--set {word}", _number(word, value), 1, 2**32 - 1)
    return replace(job, block_samples=samples, settings=_options(settings))


def with_parameters(job: Job, source: Source) -> Job:
    """The job with the order's own names in place of the words."""
    words = _words(job.order)
    settings: dict[str, str] = {}
    given: dict[str, str] = {}
    for word, value in parse_settings(job.settings).items():
        name = words.get(word, word)
        computed = _COMPUTED.get(name) if word in words else None
        name = _CHUNKS if computed else name
        if name in settings:
            raise InvalidArgumentError(
                f"--set {word}={value}: is {name}, which {given[name]} gives, too; give one"
            )
        given[name] = f"--set {word}={value}"
        settings[name] = str(computed(word, value, source)) if computed else value
    return replace(job, settings=_options(settings))


def _words(order: str) -> Mapping[str, str]:
    kind = order_class(order)
    return {} if kind is None else kind.words


def _options(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def _number(word: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise InvalidArgumentError(f"--set {word}: got {text!r}, must be a whole number")
    return int(text)


def _of_virtual_chunks(word: str, text: str, source: Source) -> int:
    """Chunks of each of so many virtual chunks."""
    blocks = source.blocks.block_count
    return -(-blocks // integer(f"--set {word}", _number(word, text), 1, blocks))


def _of_slots(word: str, text: str, source: Source) -> int:
    """Chunks of a virtual one; of bytes, or a share of the data."""
    share = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    memory = (
        int(source.total_bytes * float(share[1]) / 100)
        if share
        else parse_bytes(text, f"--set {word}")
    )
    slots = integer(f"--set {word}", memory, 1, 2**62)
    return chunks_of_slots(source.total_bytes, slots)


_COMPUTED: Mapping[str, Callable[[str, str, Source], int]] = {
    "virtual_chunks": _of_virtual_chunks,
    "slots": _of_slots,
}
