"""The order `redox` as slow Python: frozen, and true to what docs/orders.md promises."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from pathlib import Path

import pytest
import redox_model as model
import redox_node_model as node_model

SHORT = model.Options(12, [3] * 4, batch_size=3, seed=7, chunks_per_virtual=2)
SHORT_LINES = [
    "0.0 0:1:0,1,2 1:2:0,1,2 3/0 8/1 6/1",
    "0.1 2:3:0,1,2 5/0 7/1 11/2",
    "0.2 3:0:0,2 0/3 10/2 4/0",
    "0.3 4:0:1 9/2 1/4 2/3",
]
UNEVEN = model.Options(
    16,
    [3, 5, 1, 4, 3],
    batch_size=2,
    world_size=2,
    rank=1,
    seed=7,
    drop_last=True,
    chunks_per_virtual=2,
    mapping="interleaved",
    slot_classes=2,
    nodes=2,
    prefetch=4,
    remote_units=5,
    memory_units=14,
    units=[1 + i % 4 for i in range(16)],
)
UNEVEN_LINES = [
    "1.1 0:3!2,3 1:1!2 2:0:0,1,2 12/0 0/2 11-0 5-1",
    "1.2 3:1:0 4:4:0,2 1/2 2/2 3-3 15-4",
    "1.3 5:1:3,4 6:4:1 7/5 14/6 6-5 13-4",
]
EXCHANGE = model.Options(
    12,
    [3] * 4,
    batch_size=2,
    world_size=2,
    exchange=True,
    seed=7,
    chunks_per_virtual=1,
    nodes=2,
    prefetch=3,
)
EXCHANGE_LINES = [
    [
        "0.0 0<1.0:3,4 1:6+3:0,1,2 3/0 6/1 >1.0:8-1",
        "0.1 2:0+3:0,1,2 7/1 0/2",
        "0.2 4/0 1/2 >1.1:2-2",
    ],
    [
        "0.0 0:3+3:0,1,2 1<0.0:8 8/1 5/0 >0.0:3-0,4-0",
        "0.1 2:9+3:0,1,2 11/2 10/2",
        "0.2 3<0.1:2 9/2 2/3",
    ],
]
SPLIT_LINES = [
    [
        "0.0 0<1.0:3 1<1.1:4 2:6+3:0,1,2 3/0 6/2 >1.0:8-2",
        "0.1 3:0+3:0,1,2 7/2 0/3",
        "0.2 4/1 1/3 >1.1:2-3",
    ],
    [
        "0.0 0:3+3:0,1,2 1<0.0:8 8/1 5/0 >0.0:3-0 >>0.1:4-0",
        "0.1 2:9+3:0,1,2 11/2 10/2",
        "0.2 3<0.1:2 9/2 2/3",
    ],
]
PREFETCH = model.Options(
    1999,
    [64] * 31 + [15],
    batch_size=10,
    world_size=4,
    rank=2,
    seed=2**64 - 3,
    nodes=4,
    prefetch=150,
    remote_units=30,
)
CLASSES = model.Options(
    1999, [64] * 31 + [15], batch_size=10, seed=9, slot_classes=16, nodes=3, prefetch=100
)
TRACE = model.Options(
    1999,
    [64] * 31 + [15],
    batch_size=17,
    seed=5,
    refill="random",
    slot_classes=8,
    memory_units=300,
    units=[1 + i % 7 for i in range(1999)],
    trace=[i * i % 1999 for i in range(1500)],
)


def fnv1a(lines: list[str]) -> str:
    value = 0xCBF29CE484222325
    for byte in "".join(f"{line}\n" for line in lines).encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


# Frozen: src/papers/redox/redox_order_test.cc has the same.
def test_the_model_gives_the_frozen_orders() -> None:
    assert model.stream(SHORT, epochs=1) == SHORT_LINES
    assert model.stream(UNEVEN, epochs=2, start=(1, 1)) == UNEVEN_LINES
    assert fnv1a(model.stream(PREFETCH, epochs=1)) == "53a8c900240a6f0f"
    assert fnv1a(model.stream(CLASSES, epochs=1)) == "006a66ca705bf785"
    assert fnv1a(model.stream(TRACE, epochs=2, start=(0, 20))) == "315f8409465457a8"


def test_the_model_gives_the_frozen_streams_of_two_nodes() -> None:
    for framing, of_nodes in (("one", EXCHANGE_LINES), ("split", SPLIT_LINES)):
        for node, lines in enumerate(of_nodes):
            options = dataclasses.replace(EXCHANGE, rank=node, framing=framing)
            assert node_model.node_stream(options, epochs=1) == lines


def test_the_page_prints_the_short_orders() -> None:
    page = (Path(__file__).parents[3] / "docs" / "orders.md").read_text()
    for line in SHORT_LINES + EXCHANGE_LINES[0] + EXCHANGE_LINES[1]:
        assert line in page


def some_options(seed: int) -> model.Options:
    rng = random.Random(seed)
    samples = rng.choice([1, 2, 7, 16, 53, 97, 128])
    blocks: list[int] = []
    while sum(blocks) < samples:
        blocks.append(min(rng.randint(1, 12), samples - sum(blocks)))
    return model.Options(
        samples,
        blocks,
        batch_size=rng.randint(1, 9),
        world_size=rng.choice([1, 2, 3, 16]),
        seed=seed,
        chunks_per_virtual=rng.choice([1, 2, 3, 10]),
        mapping=rng.choice(["consecutive", "interleaved"]),
        refill=rng.choice(["max_fill", "random"]),
        ties=rng.choice(["random", "first"]),
        slot_classes=rng.choice([0, 1, 2, 7]),
        nodes=rng.choice([1, 2, 3, 5]),
        prefetch=rng.choice([0, 2, 5, 30]),
        remote_units=rng.choice([0, 9, 40]),
        memory_units=rng.choice([0, 9, 14, 60]),
        units=[rng.randint(1, 9) for _ in range(samples)],
    )


@pytest.mark.parametrize("seed", range(60))
def test_every_sample_once_an_epoch_and_nothing_over_budget(seed: int) -> None:
    options = some_options(seed)
    epoch = model.Epoch(options, 0)
    delivered = [d for step in epoch.steps() for d in step.deliveries]
    kept = Counter(sample for sample, _, read in delivered if read != model.NO_READ)
    assert kept == Counter(range(options.samples))
    assert len(delivered) == -(-options.samples // options.world_size) * options.world_size
    assert not epoch.resident()
    if options.memory_units:
        assert epoch.peak <= options.memory_units
    if options.remote_units:
        assert epoch.peak_remote <= options.remote_units
