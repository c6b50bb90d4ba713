"""`loader.explain()`: what a loader does and why, in sentences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from html_page import Page
from loader_data import COUNT, FLAT, sample_file, write_numbered
from node_ranks import Ranks

import headrace as hr
from headrace import _core, errors
from headrace._observe.account import LoaderFacts, account
from headrace.orders import order_class


def told(loader: hr.Loader) -> dict[str, str]:
    return loader.explain().sentences


def plain(sample: hr.Sample) -> int:
    return sample.id


def test_every_order_is_told_with_its_meaning(numbered: Path) -> None:
    meanings = set()
    for name in _core.order_names():
        with hr.Loader(numbered, 16, order=name, seed=7) as loader:
            sentence = told(loader)["order"]
        kind = order_class(name)
        assert kind is not None
        assert kind.__doc__ is not None
        meaning = kind.__doc__.partition("\n")[0]
        assert sentence.startswith(f"Order {name}: {meaning} Seed 7 fixes it: ")
        meanings.add(meaning)
    assert len(meanings) == len(_core.order_names())


def test_a_loader_tells_what_it_delivers_and_where_it_is(numbered: Path) -> None:
    with hr.Loader(numbered, 16, transform=FLAT, epochs=3, drop_last=True) as loader:
        taken = iter(loader)
        next(taken), next(taken)
        sentences = told(loader)
    assert sentences["data"] == (
        f"It delivers {COUNT} samples of {numbered} (format folder), 16 samples a batch, 6 batches "
        "an epoch, 3 epochs."
    )
    assert sentences["position"].startswith("The loop took 2 of 6 batches of epoch 0; ")
    assert "image (uint8 3 x 8 x 8), label (int64)" in sentences["batches"]
    assert sentences["batches"].endswith("The last batch is dropped if it is smaller.")
    assert sentences["ranks"] == "The engine that reads and decodes is in this process."
    assert "for reads in progress" in sentences["memory"]
    assert sentences["reading"].startswith("Storage is read by ")
    assert " reads, for " in sentences["reading"]


def test_the_sum_of_memory_is_that_of_its_parts(numbered: Path) -> None:
    with hr.Loader(numbered, 16, transform=FLAT, memory="64MiB") as loader:
        next(iter(loader))
        memory = loader.stats()["memory"]
        sentence = told(loader)["memory"]
    budgets = [value for name, value in memory.items() if name.endswith("_budget")]
    whole = sum(budgets) / 2**20
    assert sentence.startswith(f"Memory is limited to {whole:.1f} MiB: ")
    assert sentence.count(" for ") == sum(1 for each in budgets if each)


def test_what_limits_the_shuffle_is_told(numbered: Path) -> None:
    order = hr.orders.Epoch(pools=2, block_samples=20)
    with hr.Loader(numbered, 8, order=order) as loader:
        sentences = told(loader)
        expected = loader.expected_inflation
    assert expected is not None
    assert f"varies {expected['of_labels']:.2f} times as much" in sentences["shuffle"]
    assert "You gave block_samples 20, pools 2." in sentences["order"]
    with hr.Loader(numbered, 8, order="exact") as loader:
        assert "shuffle" not in told(loader)


def test_a_sampler_says_the_order(numbered: Path) -> None:
    with hr.Loader(numbered, 2, sampler=[5, 3, 1], seed=9) as loader:
        sentences = told(loader)
        assert sentences["order"].startswith("A sampler says which sample comes when")
        assert "batches an epoch" not in sentences["data"]
        next(iter(loader))
        sentences = told(loader)
        assert "2 batches an epoch" in sentences["data"]
        assert sentences["position"].startswith("The loop took 1 of 2 batches of epoch 0; ")


def test_nothing_is_shuffled_if_so_asked(numbered: Path) -> None:
    with hr.Loader(numbered, 2, shuffle=False) as loader:
        assert told(loader)["order"].endswith("Nothing is shuffled: shuffle=False.")


def test_ranks_tiers_and_workers_are_told(numbered: Path) -> None:
    with hr.Loader(
        numbered,
        8,
        job=hr.Job(rank=1, world_size=3),
        tiers=hr.Cache([hr.tiers.Ram("20KB")], placement="lru"),
        transform=plain,
        workers=hr.Workers(1, start="fork"),
    ) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        before = loader.stats()["tiers"][0]["uses"]
        sentences = told(loader)
        after = loader.stats()["tiers"][0]["uses"]  # The loader reads ahead.
    assert sentences["ranks"].startswith("This is rank 1 of 3: all ranks get 24 samples a step ")
    assert "by the placement lru: RAM holds " in sentences["tiers"]
    gave = re.search(r"and gave ([0-9,]+) samples?", sentences["tiers"])
    assert gave is not None
    assert before <= int(gave[1].replace(",", "")) <= after
    assert "Python functions of yours then run in worker processes" in sentences["batches"]
    with hr.Loader(numbered, 8, transform=plain, workers=0) as loader:
        assert "then run in this process" in told(loader)["batches"]
        assert "tiers" not in told(loader)


def test_ranks_that_share_a_node_process_are_told(numbered: Path) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", str(numbered), batch_size=4)
        for rank, sentences in enumerate(ranks.ask("account")):
            assert sentences["ranks"] == (
                f"This is rank {rank} of 2: all ranks get 8 samples a step together. One node "
                "process reads and decodes for the 2 ranks of this machine."
            )


def test_replaced_samples_are_told(tmp_path: Path) -> None:
    root = write_numbered(tmp_path / "images", (9,))
    sample_file(root, 4).write_bytes(b"no image")
    arguments: dict[str, Any] = {"transform": FLAT, "on_error": "substitute"}
    with hr.Loader(root, 3, **arguments) as loader:
        list(loader)
        assert told(loader)["replaced"] == (
            "1 sample could not be delivered and was replaced: stats()['substitutions']."
        )


def facts(**given: Any) -> LoaderFacts:
    base: dict[str, Any] = {
        "path": "data",
        "format": "pack",
        "samples": 10,
        "schema": [],
        "python": False,
        "batch_size": 2,
        "steps": 5,
        "epochs": None,
        "rank": 0,
        "world_size": 1,
        "engine_ranks": 0,
        "order": "exact",
        "origins": {},
        "inflation": None,
        "seed": 0,
        "shuffle": True,
        "drop_last": False,
        "sampler": False,
        "placement": "none",
        "epoch": 0,
        "step": 0,
    }
    return LoaderFacts(**(base | given))


def test_other_nodes_and_lost_tiers_are_told(numbered: Path) -> None:
    with hr.Loader(numbered, 2, tiers=[hr.tiers.Ram("1MB")]) as loader:
        stats: Any = dict(loader.stats())
    nodes = {"node": 1, "nodes": 3, "received": 40, "asked": 50, "given": 60, "down": [2]}
    stats["nodes"] = nodes
    stats["parcels"] = {"received_samples": 5, "sent_samples": 6}
    stats["tiers"][0]["degraded"] = "the disk is full"
    sentences = account(facts(), stats).sentences
    assert sentences["nodes"] == (
        "This is node 1 of 3: it received 40 samples from the others, of 50 that it asked for, and "
        "gave 60. Not asked now: node 2. Nodes read their own disks: 5 samples came from other "
        "nodes, 6 went to them."
    )
    assert "is not used any more: the disk is full" in sentences["tiers"]
    limited = account(facts(origins={"pool_bytes": (9, "default, limited by memory")}), stats)
    assert limited.sentences["shuffle"] == (
        "Memory limits pool_bytes: raise memory= for a better shuffle."
    )


def test_it_is_printed_shown_and_needs_a_step_for_an_epoch(numbered: Path) -> None:
    with hr.Loader(numbered, 16, transform=FLAT) as loader:
        list(loader)
        found = loader.explain()
        lines = str(found).splitlines()
        assert lines == list(found.sentences.values())
        assert repr(found) == str(found)
        page = Page(found._repr_html_())
        for sentence in lines:
            assert sentence in page.texts
        verdict = loader.stats()["verdict"]
        assert lines[-1][1:-1].partition(":")[0] == verdict[1:].partition(":")[0]
        with pytest.raises(errors.InvalidArgumentError, match="got epoch=1 without a step"):
            loader.explain(epoch=1)  # type: ignore[call-overload]
        rows = Page(loader.explain(0)._repr_html_())
        assert rows.texts[0] == "epoch 1, step 0, order exact"
        assert f"{numbered}" in rows.text
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        loader.explain()
