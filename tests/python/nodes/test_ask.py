"""What nodes ask each other for: what the plan says, or what they guess by their own progress."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from loader_data import COUNT, flat
from node_ranks import RankError, Ranks, addresses
from test_nodes import GLOBAL, ORDERS, alone, data_bytes, merged, total

import headrace as hr
from headrace import errors


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("placement", ["coordinated", "frequency"])
def test_nodes_that_guess_deliver_the_batches_of_one(
    numbered: Path, order: str, placement: str
) -> None:
    expected = alone(numbered, order, epochs=3, drop_last=True)
    with Ranks(3, local_ranks=1) as ranks:
        ranks.ask(
            "open_",
            str(numbered),
            node={"addresses": addresses(3), "ask": "progress"},
            batch_size=GLOBAL // 3,
            ram="16MiB",
            order=order,
            placement=placement,
            drop_last=True,
        )
        for epoch in range(3):
            assert merged(ranks.ask("epoch")) == expected[epoch]
        assert total(ranks, "nodes", "failed") == 0
        assert total(ranks, "sources", "brought") == 0, "nobody reads storage for another"
        ranks.ask("close")


def test_what_a_node_guesses_wrongly_comes_from_storage_and_is_counted(numbered: Path) -> None:
    with Ranks(3, local_ranks=1) as ranks:
        node = {"addresses": addresses(3), "ask": "progress"}
        ram = data_bytes(numbered) // 2  # So that nobody has all of it itself.
        ranks.ask(
            "open_", str(numbered), node=node, batch_size=GLOBAL // 3, ram=ram, epochs=4,
            engine={"prefetch": 1},
        )  # fmt: skip
        for _ in range(4):
            assert Counter(flat(flat(ranks.ask("epoch")))).keys() == set(range(COUNT))
        asked, lacked = total(ranks, "nodes", "asked"), total(ranks, "nodes", "not_held")
        assert asked == total(ranks, "nodes", "received") + lacked
        assert lacked == total(ranks, "sources", "node_fallbacks")
        assert lacked == total(ranks, "nodes", "not_given")
        assert asked > lacked
        ranks.ask("close")


def test_all_nodes_must_ask_alike(numbered: Path) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        found = addresses(2)
        for rank, ask in zip(ranks, ("plan", "progress"), strict=True):
            node = {"addresses": found, "ask": ask}
            rank.say("open_", str(numbered), batch_size=4, ram="16MiB", node=node)
        for rank in ranks:
            rank.answer()
        for rank in ranks:
            rank.say("epoch")
        for rank in ranks:
            with pytest.raises(RankError, match=r"Node\.ask is "):
                rank.answer()


def test_another_value_is_refused_by_name(numbered: Path) -> None:
    with pytest.raises(
        errors.InvalidArgumentError, match=r"Node\.ask: got 'guess', must be one of"
    ):
        hr.Loader(numbered, 4, job=hr.Job(node=hr.Node(ask="guess")))  # type: ignore[arg-type]
