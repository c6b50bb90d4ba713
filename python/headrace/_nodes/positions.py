"""Which ranks of a job get the same batches, and which of them are on one node. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.errors import InvalidArgumentError


@dataclass(frozen=True)
class Layout:
    """The ranks of a job: `tensor` neighbours share a position, and so do `pipeline` stages.

    Rank r has the data-parallel position (r // tensor) mod positions, as in Megatron and in
    torch's device meshes: pipeline stages are the slowest dimension, tensor ranks the fastest.

    Raises:
        InvalidArgumentError: the job's ranks cannot be divided so.
    """

    world_size: int
    tensor: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        if self.world_size % (self.tensor * self.pipeline):
            raise InvalidArgumentError(
                f"{self}: {self.world_size} ranks cannot be divided so; the world size must be a "
                "multiple of tensor x pipeline"
            )

    def __str__(self) -> str:
        return f"Job(tensor={self.tensor}, pipeline={self.pipeline})"

    @property
    def positions(self) -> int:
        """The number of data-parallel positions."""
        return self.world_size // (self.tensor * self.pipeline)

    def position(self, rank: int) -> int:
        """The data-parallel position of a rank."""
        return rank // self.tensor % self.positions


def layout_among(ranks: Sequence[int], world_size: int) -> Layout | None:
    """The layout in which these ranks, in this order, have the positions 0, 1, ..., as the ranks of
    every other group of as many have; None if there is none."""
    count = len(ranks)
    tensor = ranks[1] - ranks[0] if count > 1 else world_size
    if tensor < 1 or world_size % (tensor * count):
        return None
    layout = Layout(world_size, tensor, world_size // (tensor * count))
    distances = {after - before for before, after in pairwise(ranks)}
    fits = distances <= {tensor} and layout.position(ranks[0]) == 0
    return layout if fits and ranks[0] >= 0 and ranks[-1] < world_size else None


@dataclass(frozen=True)
class Seats:
    """The ranks of one node, by their positions, and the nodes with which it divides the samples.

    Nodes with the same positions (pipeline stages, tensor ranks on several nodes) do not divide
    samples among them: each is in another group.
    """

    first: int
    """The least position here."""
    positions: int
    """How many are here, all neighbours."""
    group: tuple[int, ...]
    """Nodes of the job, in the order of their positions: each position is on one of them."""
    number: int
    """Of that group, among those of the job."""


def seats(layout: Layout, node: int, local_world_size: int) -> Seats:
    """Those of a node of `local_world_size` ranks; all nodes have as many.

    Raises:
        InvalidArgumentError: the ranks of a node have positions that cannot be planned together.
    """
    count = layout.world_size // local_world_size
    of_nodes = [_positions(layout, other, local_world_size) for other in range(count)]
    of_each = len(of_nodes[node])
    for other, here in enumerate(of_nodes):
        first = min(here)
        whole = sorted(here) == list(range(first, first + of_each)) and first % of_each == 0
        if not whole or len(set(here.values())) > 1:
            raise InvalidArgumentError(
                f"{layout} with a node process and {local_world_size} ranks on each node: node "
                f"{other} has the positions {_shown(here)} of {layout.positions}, in part or "
                "beside others than another node has them; let tensor divide the ranks of a node, "
                "or the reverse, and let no stage begin inside a node and end inside another"
            )
    firsts = [min(here) for here in of_nodes]
    seen: Counter[int] = Counter()
    numbers = []  # of each node: its group's
    for first in firsts:
        numbers.append(seen[first])
        seen[first] += 1
    group = [other for other in range(count) if numbers[other] == numbers[node]]
    in_order = tuple(sorted(group, key=firsts.__getitem__))
    return Seats(firsts[node], of_each, in_order, numbers[node])


def _positions(layout: Layout, node: int, local_world_size: int) -> Counter[int]:
    """Of a node: how many of its ranks have each position."""
    first = node * local_world_size
    return Counter(layout.position(rank) for rank in range(first, first + local_world_size))


def _shown(here: Counter[int]) -> str:
    return ", ".join(f"{position} ({here[position]} ranks)" for position in sorted(here))
