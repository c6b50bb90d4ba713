"""The core's order `redox` equals the model of docs/orders.md, id by id, on random jobs.

`make soak` runs more of them, on other seeds: HEADRACE_REDOX_CASES, HEADRACE_SEED.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox_model as model
import redox_node_model as node_model
from commands import run, run_json
from loader_data import COUNT, FLAT, epoch_ids, flat
from PIL import Image

import headrace as hr
from headrace import _core, orders

CASES = int(os.environ.get("HEADRACE_REDOX_CASES", "600"))
SEED = int(os.environ.get("HEADRACE_SEED", "0"))
EPOCHS = 2


def random_options(rng: random.Random, exchange: bool) -> tuple[model.Options, int]:
    """Options without units, and the samples of a chunk."""
    samples = rng.choice([1, 2, 3, 5, 8, 13, 21, 34, 55])
    chunk = rng.choice([1, 2, 3, 5, 8])
    blocks = [min(chunk, samples - first) for first in range(0, samples, chunk)]
    nodes = rng.choice([1, 2, 2, 3, 4])
    ranks = rng.choice([1, 1, 2, 3])
    world = nodes * ranks if exchange else rng.choice([1, 2, 3, 6])
    batch = rng.choice([1, 2, 3, 5])
    homes = None
    if rng.random() < 0.3:
        homes = [home for size in blocks for home in [rng.randrange(nodes)] * size]
    return model.Options(
        samples,
        blocks,
        batch_size=batch,
        world_size=world,
        rank=rng.randrange(nodes) * ranks if exchange else rng.randrange(world),
        ranks=ranks if exchange else 1,
        exchange=exchange,
        seed=rng.choice([rng.randrange(100), rng.randrange(2**64)]),
        drop_last=samples >= batch * world and rng.random() < 0.5,
        chunks_per_virtual=rng.choice([1, 2, 3, 10]),
        mapping=rng.choice(["consecutive", "interleaved"]),
        refill=rng.choice(["max_fill", "max_fill", "random"]),
        ties=rng.choice(["random", "first"]),
        slot_classes=rng.choice([0, 0, 1, 2, 3]),
        nodes=nodes,
        prefetch=rng.choice([0, 2, 3, 5, 20]),
        remote_units=rng.choice([0, 0, 1, 2, 9]),
        memory_units=rng.choice([0, 0, 0, 9, 14]),
        remap=rng.random() < 0.3,
        arrival=rng.random() < 0.3,
        framing=rng.choice(["one", "split"]),
        homes=homes,
        bijection_from=rng.choice([1, 10, 1 << 24]),
    ), chunk


def of_core(
    options: model.Options,
    index: tuple[int, int] | _core.Blocks,
    start: tuple[int, int],
) -> _core.OrderStream:
    unit = index.unit_bytes if isinstance(index, _core.Blocks) else 1
    parameters: dict[str, int | str] = {
        "chunks_per_virtual": options.chunks_per_virtual,
        "mapping": options.mapping,
        "refill": options.refill,
        "ties": options.ties,
        "slot_classes": options.slot_classes,
        "nodes": options.nodes,
        "prefetch": options.prefetch,
        "remote_bytes": options.remote_units * unit,
        "memory_bytes": options.memory_units * unit,
        "remap": int(options.remap),
        "arrival": int(options.arrival),
        "framing": options.framing,
        "bijection_from": options.bijection_from,
    }
    return _core.OrderStream(
        "redox",
        parameters,
        index=index,
        batch_size=options.batch_size,
        world_size=options.world_size,
        rank=options.rank,
        ranks=options.ranks,
        exchange=options.exchange,
        seed=options.seed,
        drop_last=options.drop_last,
        epochs=EPOCHS,
        epoch=start[0],
        step=start[1],
        homes=None if options.homes is None else np.array(options.homes, np.uint32),
    )


def line_of(step: _core.PlannedStep, options: model.Options) -> str:
    """As the model writes it."""
    firsts = [sum(options.blocks[:p]) for p in range(len(options.blocks))]
    parts = [f"{step.epoch}.{step.step}"]
    parcels = {number: (home, parcel) for number, home, parcel in step.parcel_reads}
    for number, first, count, kept, again in step.block_reads:
        positions = kept or range(count)
        if number in parcels:
            home, parcel = parcels[number]
            parts.append(
                f"{number}<{home}.{parcel}:{','.join(str(first + each) for each in positions)}"
            )
            continue
        mark = "!" if again else ":"
        if options.exchange:
            what = f"{first}+{count}"
        else:
            what = str(firsts.index(first))
            assert count == options.blocks[firsts.index(first)]
        parts.append(f"{number}:{what}{mark}{','.join(map(str, positions))}")
    reads, ids = step.block_read.tolist(), step.ids.tolist()
    parts += [f"{sample}/{read}" for sample, read in zip(ids, reads, strict=True)]
    parts += [f"{sample}-{read}" for read, sample in step.releases]
    for node, number, samples, ahead in step.parcels:
        sent = ",".join(f"{sample}-{read}" for read, sample in samples)
        parts.append(f"{'>>' if ahead else '>'}{node}.{number}:{sent}")
    return " ".join(parts)


def check(
    options: model.Options, index: tuple[int, int] | _core.Blocks, start: tuple[int, int]
) -> int:
    """Compares the streams, and returns how many lines they have."""
    of_model = node_model.node_stream if options.exchange else model.stream
    wanted = of_model(options, EPOCHS, start)
    found = [line_of(step, options) for step in of_core(options, index, start)]
    assert found == wanted, options
    return len(found)


def random_start(options: model.Options, rng: random.Random) -> tuple[int, int]:
    batch = options.batch_size * options.world_size
    steps = options.samples // batch if options.drop_last else -(-options.samples // batch)
    return (rng.randrange(EPOCHS), rng.randrange(steps)) if rng.random() < 0.5 else (0, 0)


@pytest.mark.parametrize("exchange", [False, True])
def test_the_core_gives_what_the_page_says_on_random_jobs(exchange: bool) -> None:
    lines = parcels = 0
    for case in range(CASES):
        rng = random.Random(f"{SEED} {case} {exchange}")
        options, chunk = random_options(rng, exchange)
        lines += check(options, (options.samples, chunk), random_start(options, rng))
        parcels += exchange and options.nodes > 1 and options.prefetch > 1
    assert lines > CASES
    assert not exchange or parcels > CASES // 4


def test_the_core_counts_memory_as_the_page_says(tmp_path: Path) -> None:
    """With samples that differ in size, so that limits of memory and of parcels matter."""
    rng = random.Random(SEED)
    sizes = []
    (tmp_path / "images" / "class").mkdir(parents=True)
    for i in range(60):
        path = tmp_path / "images" / "class" / f"{i:03}.jpg"
        Image.new("RGB", (8, 8)).save(path)
        path.write_bytes(path.read_bytes() + bytes(rng.randrange(4000)))
        sizes.append(path.stat().st_size)
    index = hr.open(tmp_path / "images", index=tmp_path / "index.hri").index
    unit = _core.Blocks.of_index(index, 1).unit_bytes
    units = [-(-size // unit) for size in sizes]
    assert max(units) > 2 * min(units)
    for case in range(CASES // 10):
        exchange = bool(case % 2)
        options, chunk = random_options(rng, exchange)
        blocks = _core.Blocks.of_index(index, chunk)
        assert blocks.total_units == sum(units)
        options.samples, options.units = len(sizes), units
        options.blocks = np.diff(blocks.bounds()).tolist()
        options.memory_units = rng.choice([0, max(units), 30, 80])
        options.remote_units = rng.choice([0, 5, 16, 40])
        options.homes = None
        check(options, blocks, random_start(options, rng))


# RX-17: a sample that answers another one's request comes with its own label and bytes.
@pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")
@pytest.mark.parametrize(
    ("order", "changes"),
    [
        (orders.Redox(chunks_per_virtual=4, block_samples=5), {}),
        (orders.Redox(chunks_per_virtual=4, block_samples=5, read="chunk"), {}),
        (orders.Redox(chunks_per_virtual=4, block_samples=5, remap=True), {"remap": True}),
        (
            orders.Redox(chunks_per_virtual=4, block_samples=5, nodes=3, prefetch=9, arrival=True),
            {"nodes": 3, "prefetch": 9, "arrival": True},
        ),
    ],
)
def test_labels_and_payload_are_those_of_the_sample_that_answers(
    numbered: Path, order: orders.Redox, changes: dict[str, Any]
) -> None:
    options = model.Options(
        COUNT, [5] * 19 + [2], batch_size=12, seed=6, chunks_per_virtual=4, **changes
    )
    with hr.Loader(numbered, batch_size=12, transform=FLAT, seed=6, order=order) as loader:
        for epoch in range(2):
            expected = model.Epoch(options, epoch)
            wanted = [[d[0] for d in step.deliveries] for step in expected.steps()]
            assert epoch_ids(loader) == wanted  # told by pixels, and compared with labels
            assert flat(wanted) != expected.trace


def test_a_state_without_the_new_parameters_is_continued() -> None:
    assert (
        orders.added_parameters("redox").items()
        >= {
            "read": "kept",
            "framing": "one",
            "remap": 0,
            "arrival": 0,
            "fill_ahead": 0,
            "home_table": "none",
        }.items()
    )
    added = orders.added_parameters("redox")
    assert added.items() <= (
        _core.resolve_order("redox", {}, index=(12, 3)).items() | {("bijection_from", 2**27 + 1)}
    )


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (orders.Redox(read="all"), "read: got 'all', must be one of 'kept', 'chunk'"),  # type: ignore[arg-type]
        (orders.Redox(remap=1), "remap: got 1, must be True or False"),  # type: ignore[arg-type]
        (orders.Redox(fill_ahead=True), "depend on all epochs before"),
    ],
)
def test_wrong_options_are_named(numbered: Path, order: orders.Redox, message: str) -> None:
    with pytest.raises(hr.errors.InvalidArgumentError, match=message):
        hr.Loader(numbered, batch_size=4, order=order).close()


def test_the_command_prints_the_planners_state() -> None:
    arguments = ("order", "--order", "redox", "--samples", 12, "--block-samples", 3, "--batch", 3)
    chunks = ("--set", "chunks_per_virtual=2", "--seed", 7)
    state = run_json(*arguments, *chunks, "--dump", 2)
    # docs/orders.md has this order: 3 8 6, then 5 7 11. Of reads 0 and 2 these are left.
    held = {each["file"]: each["read"] for each in state["files"] if each["node"] is not None}
    assert held == {4: 0, 9: 2, 10: 2}
    assert [each["PCS"] for each in state["virtual_chunks"]] == [[0, 1], [2, 3]]
    assert {each["sn"] for each in state["files"]} == set(range(12))
    assert state["buffers"] == []
    exact = run("order", "--samples", 12, "--dump", 2, code=2)
    assert "--dump: order exact has no state to show" in exact.stderr
