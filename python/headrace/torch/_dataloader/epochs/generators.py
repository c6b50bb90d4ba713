"""The generators of samplers, and their states as plain values."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from headrace._loading.passes.origins import generators_of
from headrace.errors import FailedPreconditionError


def of_sampler(sampler: Any, *others: torch.Generator | None) -> list[Any]:
    """`others` that are given, then those of the samplers; each once."""
    return generators_of(sampler, *(generator for generator in others if generator is not None))


def states(generators: Sequence[Any]) -> list[Any]:
    return [
        encoded(generator.get_state())
        if isinstance(generator, torch.Generator)
        else dict(generator.bit_generator.state)
        for generator in generators
    ]


def set_states(generators: Sequence[Any], saved: Sequence[Any]) -> None:
    """Raises: FailedPreconditionError if the states are of other generators."""
    here = [
        "torch" if isinstance(generator, torch.Generator) else "NumPy" for generator in generators
    ]
    there = ["torch" if isinstance(state, str) else "NumPy" for state in saved]
    if here != there:
        raise FailedPreconditionError(
            "state: random generators of the loader and its sampler differ: saved with "
            f"{', '.join(there) or 'none'}, restored with {', '.join(here) or 'none'}; give the "
            "same shuffle=, sampler= and generator="
        )
    for generator, state in zip(generators, saved, strict=True):
        if isinstance(generator, torch.Generator):
            generator.set_state(decoded(state))
        else:
            assert isinstance(state, Mapping)
            generator.bit_generator.state = dict(state)


def encoded(state: torch.Tensor) -> str:
    """The text of a state of torch's generator."""
    return base64.b64encode(state.numpy().tobytes()).decode()


def decoded(state: str) -> torch.Tensor:
    """The state of its text."""
    return torch.frombuffer(bytearray(base64.b64decode(state)), dtype=torch.uint8)
