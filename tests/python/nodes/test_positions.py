"""Which ranks share a data-parallel position, and what a node's ranks have together."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace._nodes.positions import Layout, Seats, seats
from headrace.errors import InvalidArgumentError


def test_pipeline_stages_are_the_slowest_dimension_and_tensor_ranks_the_fastest() -> None:
    layout = Layout(16, tensor=2, pipeline=2)
    assert layout.positions == 4
    assert [layout.position(rank) for rank in range(16)] == [0, 0, 1, 1, 2, 2, 3, 3] * 2


def test_without_groups_each_rank_has_a_position() -> None:
    assert [Layout(5).position(rank) for rank in range(5)] == [0, 1, 2, 3, 4]
    assert seats(Layout(6), 1, 2) == Seats(first=2, positions=2, group=(0, 1, 2), number=0)


def test_a_world_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Job\(tensor=2, pipeline=3\): 8 ranks"):
        Layout(8, tensor=2, pipeline=3)


@pytest.mark.parametrize(
    ("layout", "local", "expected"),
    [
        # Tensor ranks of a node: two positions a node.
        (Layout(8, tensor=2), 4, [Seats(0, 2, (0, 1), 0), Seats(2, 2, (0, 1), 0)]),
        # A stage a node: both have all positions, and each reads for itself.
        (Layout(8, tensor=2, pipeline=2), 4, [Seats(0, 2, (0,), 0), Seats(0, 2, (1,), 1)]),
        # Two stages on one node.
        (Layout(8, tensor=2, pipeline=2), 8, [Seats(0, 2, (0,), 0)]),
        # A tensor group on two nodes.
        (
            Layout(8, tensor=4),
            2,
            [Seats(0, 1, (0, 2), 0), Seats(0, 1, (1, 3), 1), Seats(1, 1, (0, 2), 0),
             Seats(1, 1, (1, 3), 1)],
        ),
    ],
)  # fmt: skip
def test_the_positions_of_each_node(layout: Layout, local: int, expected: list[Seats]) -> None:
    nodes = range(layout.world_size // local)
    assert [seats(layout, node, local) for node in nodes] == expected


@pytest.mark.parametrize("world_size", [8, 12, 16, 24])
@pytest.mark.parametrize("tensor", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("pipeline", [1, 2, 3])
@pytest.mark.parametrize("local", [1, 2, 4, 8])
def test_every_group_of_nodes_has_each_position_on_one_node(
    world_size: int, tensor: int, pipeline: int, local: int
) -> None:
    if world_size % (tensor * pipeline) or world_size % local:
        return
    layout = Layout(world_size, tensor, pipeline)
    nodes = range(world_size // local)
    of_nodes = [
        Counter(layout.position(node * local + each) for each in range(local)) for node in nodes
    ]
    sets = {frozenset(here) for here in of_nodes}
    if len({frozenset(here.values()) for here in of_nodes}) > 1 or sum(map(len, sets)) != len(
        frozenset().union(*sets)
    ):
        with pytest.raises(InvalidArgumentError, match="in part or beside"):
            seats(layout, 0, local)
        return
    found = [seats(layout, node, local) for node in nodes]
    for node, of in enumerate(found):
        ranks = range(node * local, (node + 1) * local)
        here = {layout.position(rank) for rank in ranks}
        assert here == set(range(of.first, of.first + of.positions))
        assert node in of.group
        together = [
            position
            for each in of.group
            for position in range(found[each].first, found[each].first + found[each].positions)
        ]
        assert together == list(range(layout.positions))
        assert {found[each].group for each in of.group} == {of.group}


def test_nodes_that_share_a_position_in_part_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"tensor=3.* 2 ranks on each node: node 1 has"):
        seats(Layout(6, tensor=3), 0, 2)
