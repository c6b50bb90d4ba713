"""Samples of all kinds travel between nodes: without bytes, lists of lists, widened records.

And nodes of unequal numbers of ranks, which share the samples but give each other none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import sample_digest
from node_ranks import RankError, Ranks, addresses
from test_nodes import GLOBAL, alone, merged, total

from headrace.formats import Builder

COUNT = 60  # samples; 12 a step of two nodes
EPOCHS = 3
Samples = list[dict[str, Any]]


def write_empty(root: Path) -> Samples:
    """Two of three samples have no bytes in storage."""
    samples: Samples = [
        {
            "said": f"№ {i} " * (i % 3 == 0),
            "frames": np.full(i % 7 * (i % 3 == 0), i, np.int16),
            "number": np.int64(i),
        }
        for i in range(COUNT)
    ]
    with Builder(root / "made.hri", root) as builder:
        builder.add_field("said", "text")
        builder.add_field("frames", "array", "int16", (None,))
        builder.add_field("number", "array", "int64", inline=True)
        for name, parts in (
            ("said", [sample["said"].encode() for sample in samples]),
            ("frames", [sample["frames"].tobytes() for sample in samples]),
        ):
            _add_parts(builder, root / f"{name}.bin", name, parts)
        builder.add_values("number", [sample["number"] for sample in samples])
    return samples


def write_nested(root: Path) -> Samples:
    """Lists of lists; of each fifth sample they are empty, and so are some of the inner ones."""
    samples: Samples = [
        {"turns": [np.arange(j, j + (i + j) % 4, dtype=np.int32) for j in range(i % 5)]}
        for i in range(COUNT)
    ]
    with Builder(root / "made.hri", root) as builder:
        builder.add_field("turns", "array", "int32", (None, None))
        parts = [b"".join(each.tobytes() for each in sample["turns"]) for sample in samples]
        lengths = [len(each) for sample in samples for each in sample["turns"]]
        inner = lengths, [len(sample["turns"]) for sample in samples]
        _add_parts(builder, root / "turns.bin", "turns", parts, inner=inner)
    return samples


def write_widened(root: Path) -> Samples:
    """Batches hold a wider type than storage, and other nodes."""
    stored = np.random.default_rng(2).integers(0, 2**16, (COUNT, 24), np.uint16)
    with Builder(root / "made.hri", root) as builder:
        builder.add_field("tokens", "array", "uint16", (24,), batch_dtype="int64")
        _add_parts(builder, root / "tokens.bin", "tokens", [row.tobytes() for row in stored])
    return [{"tokens": row.astype(np.int64)} for row in stored]


def _add_parts(builder: Builder, path: Path, name: str, parts: list[bytes], **more: Any) -> None:
    path.write_bytes(b"".join(parts))
    sizes = [len(part) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    builder.add_extents(name, builder.add_file(path), starts, sizes, **more)


@pytest.mark.parametrize("order", ["exact", "batch", "epoch"])
@pytest.mark.parametrize("write", [write_empty, write_nested, write_widened])
def test_nodes_give_each_other_samples_of_every_kind(
    tmp_path: Path, write: Callable[[Path], Samples], order: str
) -> None:
    digests = [sample_digest(sample.items()) for sample in write(tmp_path)]
    with Ranks(2, local_ranks=1) as ranks:
        ranks.ask(
            "open_", str(tmp_path / "made.hri"), raw=True, batch_size=6, order=order, epochs=EPOCHS,
            ram="64KiB", engine={"prefetch": 1},
            node={"addresses": addresses(2), "answer_timeout": 600},
        )  # fmt: skip
        for _ in range(EPOCHS):
            delivered = [
                each for share in ranks.ask("contents") for batch in share for each in batch
            ]
            assert sorted(delivered) == [[i, digest] for i, digest in enumerate(digests)]
        assert total(ranks, "nodes", "received") == total(ranks, "nodes", "given") > 0
        for figure in ("failed", "bad_messages"):
            assert total(ranks, "nodes", figure) == 0, figure
        ranks.ask("close")


@pytest.mark.parametrize("order", ["exact", "batch", "epoch"])
def test_nodes_of_unequal_numbers_of_ranks_deliver_the_batches_of_one(
    numbered: Path, order: str
) -> None:
    """Two ranks on one node, one on the other: without tiers, so that no node asks another."""
    expected = alone(numbered, order, epochs=2, drop_last=True)
    with Ranks(3, local_ranks=[2, 1]) as ranks:
        ranks.ask(
            "open_", str(numbered), batch_size=GLOBAL // 3, order=order, drop_last=True, epochs=2
        )
        for wanted in expected:
            assert merged(ranks.ask("epoch")) == wanted
        reads = [rank.ask("figures", "io")[0]["reads"] for rank in ranks]
        assert reads[0] == reads[1] > 0  # One engine.
        assert reads[2] > 0
        ranks.ask("close")


def test_nodes_of_unequal_numbers_of_ranks_have_no_tiers(numbered: Path) -> None:
    with Ranks(3, local_ranks=[2, 1]) as ranks:
        for rank in ranks:
            rank.say("open_", str(numbered), batch_size=GLOBAL // 3, ram="1MiB")
        for rank in ranks.ranks[:2]:
            with pytest.raises(
                RankError, match="this node has 2 ranks from rank 0 on, of a world_"
            ):
                rank.answer()
