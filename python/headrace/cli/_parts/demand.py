"""`--demand`: how fast training takes samples."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace._units import parse_rate
from headrace.errors import InvalidArgumentError


class Demand(NamedTuple):
    """A rate a second; one of them is None."""

    samples: float | None
    bytes: float | None

    def samples_of(self, sample_bytes: float) -> float:
        """Samples a second, of so many bytes."""
        return (self.bytes or 0) / sample_bytes if self.samples is None else self.samples


def parse_demand(text: str) -> Demand:
    """Of "1200", "1200 samples/s" or "500 MB/s".

    Raises: InvalidArgumentError
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(samples/s)?\s*", text)
    demand = Demand(None, None)
    if match is not None:
        demand = Demand(float(match[1]), None)
    elif text.strip().lower().endswith("/s"):
        demand = Demand(None, parse_rate(text, "--demand"))
    else:
        raise InvalidArgumentError(
            f'--demand: got "{text}", must be samples a second, as 1200, or bytes, as 500MB/s'
        )
    if not any(demand):
        raise InvalidArgumentError(f'--demand: got "{text}", must be above 0')
    return demand
