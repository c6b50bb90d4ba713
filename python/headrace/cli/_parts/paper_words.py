"""The words of Redox and Brand for parameters of the order `redox`, in `headrace order --set`."""

from __future__ import annotations

import re
from dataclasses import replace

from headrace._arguments import integer
from headrace._units import parse_bytes
from headrace.cli._parts.job import OrderOptions
from headrace.cli._parts.orders import Source, parse_settings
from headrace.errors import InvalidArgumentError

_ORDER = "redox"
_SAME = {"N": "nodes", "P": "prefetch", "PCS": "chunks_per_virtual"}
_COMPUTED = ("M", "C")
_COUNT_MAX = 2**31 - 1


def with_chunks(job: OrderOptions) -> OrderOptions:
    """The job whose blocks have K samples, if K is set."""
    settings = parse_settings(job.settings)
    size = settings.pop("K", None) if job.order == _ORDER else None
    if size is None:
        return job
    if job.block_samples is not None:
        raise InvalidArgumentError(
            f"--set K={size}: is --block-samples, which is given as {job.block_samples}; give one"
        )
    samples = integer("--set K", _number("K", size), 1, 2**32 - 1)
    left = [f"{name}={value}" for name, value in settings.items()]
    return replace(job, block_samples=samples, settings=left)


def with_parameters(job: OrderOptions, source: Source) -> OrderOptions:
    """The job with the order's own names for N, P, PCS, M and C.

    M virtual chunks, or memory C for the slots of all nodes, say how many chunks share slots.
    """
    if job.order != _ORDER:
        return job
    settings: dict[str, str] = {}
    words: dict[str, str] = {}
    for word, value in parse_settings(job.settings).items():
        name = "chunks_per_virtual" if word in _COMPUTED else _SAME.get(word, word)
        if name in settings:
            raise InvalidArgumentError(
                f"--set {word}={value}: is {name}, which {words[name]} gives, too; give one"
            )
        words[name] = f"--set {word}={value}"
        settings[name] = str(_chunks(word, value, source)) if word in _COMPUTED else value
    return replace(job, settings=[f"{name}={value}" for name, value in settings.items()])


def _number(word: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise InvalidArgumentError(f"--set {word}: got {text!r}, must be a whole number")
    return int(text)


def _chunks(word: str, text: str, source: Source) -> int:
    """Of a virtual chunk."""
    if word == "M":
        blocks = source.blocks.block_count
        virtual = integer("--set M", _number(word, text), 1, blocks)
        return -(-blocks // virtual)
    share = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if share:
        memory = int(source.total_bytes * float(share[1]) / 100)
    else:
        memory = parse_bytes(text, "--set C")
    memory = integer("--set C", memory, 1, 2**62)
    return min(-(-source.total_bytes // (memory + 1)), _COUNT_MAX)  # As Redox(slots=).
