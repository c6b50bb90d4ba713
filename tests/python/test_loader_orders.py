"""Every order through the real loader: each sample once, by its payload; any rank, any resume."""

from __future__ import annotations

import json
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import order_model as model
import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat, payload_ids

import headrace as hr
from headrace import _core, errors, orders
from headrace.pack import PackParameters, write_pack

ORDERS: dict[str, orders.Order] = {
    "exact": orders.Exact(),
    "batch": orders.Batch(),
    "batch-homes": orders.Batch(homes=np.arange(COUNT) % 2),
    "epoch": orders.Epoch(pool="50%", pools=3, block_samples=5),
    "epoch-small": orders.Epoch(pool="60%", pools=2, block_samples=7, join_share=0.5),
    "epoch-whole": orders.Epoch(pool="150%", pools=4, block_samples=3),
    "redox": orders.Redox(chunks_per_virtual=4, block_samples=5),
    "redox-random": orders.Redox(chunks_per_virtual=3, block_samples=4, refill="random"),
}
# The data is sorted by class, as folders are; see the tests of the warning below.
pytestmark = pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")
each_order = pytest.mark.parametrize("name", ORDERS)
blocks_only = pytest.mark.parametrize("name", [n for n in ORDERS if n[:5] in ("epoch", "redox")])


@pytest.fixture(scope="session")
def numbered_pack(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`numbered`, not shuffled, in several shards of uneven blocks."""
    root = tmp_path_factory.mktemp("pack")
    source = hr.open(numbered, index=root / "source.hri")
    parameters = PackParameters(order="source", block_bytes=6_000, shard_bytes=30_000)
    write_pack(source, root / "pack", parameters)
    return root / "pack"


def make(dataset: Path | hr.Dataset, name: str, **options: Any) -> hr.Loader:
    defaults = {"batch_size": 12, "transform": FLAT, "seed": 6, "order": ORDERS[name]}
    return hr.Loader(dataset, **defaults | options)


def expected_counts(ids: list[int], world_size: int, batch: int, drop_last: bool) -> None:
    """Each sample once, less the drop set or plus the pad set."""
    counts = Counter(ids)
    if drop_last:
        assert len(ids) == COUNT // (batch * world_size) * batch * world_size
        assert set(counts.values()) == {1}
    else:
        pads = -COUNT % world_size
        assert set(counts) == set(range(COUNT))
        assert len(ids) == COUNT + pads
        assert sum(count - 1 for count in counts.values()) == pads


@each_order
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 4, 6])
def test_each_sample_once_on_disjoint_ranks_with_equal_steps(
    numbered: Path, name: str, world_size: int, drop_last: bool
) -> None:
    if name == "batch-homes" and world_size == 1:
        pytest.skip("a home that is no node is refused")
    batch = 12 // world_size
    shares = []
    for rank in range(world_size):
        with make(
            numbered,
            name,
            batch_size=batch,
            drop_last=drop_last,
            job=hr.Job(rank=rank, world_size=world_size),
            epochs=2,
        ) as loader:
            epochs = [epoch_ids(loader) for _ in range(2)]
            assert all(len(epoch) == len(loader) for epoch in epochs)
            shares.append(epochs)
    for epoch in range(2):
        batches = [share[epoch] for share in shares]
        assert len({tuple(len(b) for b in share) for share in batches}) == 1
        expected_counts(flat(flat(batches)), world_size, batch, drop_last)
    assert shares[0][0] != shares[0][1]


@blocks_only
def test_global_batches_do_not_depend_on_the_number_of_ranks(numbered: Path, name: str) -> None:
    def run(world_size: int) -> list[list[int]]:
        shares = []
        for rank in range(world_size):
            with make(
                numbered,
                name,
                batch_size=12 // world_size,
                job=hr.Job(rank=rank, world_size=world_size),
            ) as loader:
                shares.append(epoch_ids(loader))
        # Position g is rank g mod W's.
        return [
            [sample for row in zip(*step, strict=True) for sample in row]
            for step in zip(*shares, strict=True)
        ]

    one = run(1)
    for world_size in (2, 3, 4, 12):
        pads = -COUNT % world_size
        several = run(world_size)
        assert several[:-1] == one[:-1]
        assert several[-1][: len(several[-1]) - pads] == one[-1]


@each_order
def test_batch_sets_and_data_are_the_same_from_folder_pack_threads_and_stores(
    numbered: Path, numbered_pack: Path, name: str
) -> None:
    if name == "batch-homes":
        pytest.skip("has two nodes")
    with make(numbered, name) as loader:
        plain = [epoch_ids(loader) for _ in range(2)]
    for options in (
        {"threads": 1},
        {"threads": 8},
        {"engine": hr.EngineOptions(io="threads")},
        {"engine": hr.EngineOptions(prefetch=1)},
    ):
        with make(numbered, name, **options) as loader:
            assert [epoch_ids(loader) for _ in range(2)] == plain, options
    if name.startswith("exact"):
        with make(numbered_pack, name) as loader:
            assert [epoch_ids(loader) for _ in range(2)] == plain


@pytest.mark.parametrize("order", ["epoch", "redox"])
@pytest.mark.parametrize("memory", [None, "8MiB"])
def test_a_pack_is_read_in_its_own_blocks(
    numbered_pack: Path, order: str, memory: str | None
) -> None:
    with hr.Loader(numbered_pack, 12, transform=FLAT, order=order, seed=1, memory=memory) as loader:
        for _ in range(3):
            assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))
        stats = loader.stats()
    assert stats["io"]["blocks"] > 0


def test_epoch_reads_each_block_once(numbered: Path, numbered_pack: Path) -> None:
    stored = sum(path.stat().st_size for path in numbered.glob("*/*.jpg"))
    for dataset, options in ((numbered, {"block_samples": 5}), (numbered_pack, {})):
        order = orders.Epoch(pool="40%", pools=2, **options)
        with hr.Loader(dataset, 10, transform=FLAT, order=order, epochs=4) as loader:
            for _ in range(4):
                assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))
            read = loader.stats()["bytes"]["read"]
        assert 4 * stored <= read <= 4 * stored * (1.01 if dataset is numbered else 1.2)


@each_order
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_state_of_every_step_restores_to_the_same_remainder(
    numbered: Path, name: str, drop_last: bool
) -> None:
    if name == "batch-homes":
        pytest.skip("has two nodes")
    options = {"drop_last": drop_last, "batch_size": 18}
    batches, states = [], []
    with make(numbered, name, **options) as loader:
        for _ in range(3):
            states.append(loader.state_dict())
            for batch in loader:
                batches.append(payload_ids(batch))
                states.append(loader.state_dict())
            states.pop()
    states = json.loads(json.dumps(states))
    for done, state in enumerate(states):
        with make(numbered, name, **options) as again:
            again.load_state_dict(state)
            assert again.state_dict() == state
            rest = []
            while again.epoch < 3:
                rest += epoch_ids(again)
            assert rest == batches[done:]


@pytest.mark.parametrize("pools", [48, 5])
def test_world_sizes_8_3_16_continue_one_global_sequence(numbered: Path, pools: int) -> None:
    """At a global batch of 96, whether or not they divide the pools."""
    order = orders.Epoch(pool="400%", pools=pools, block_samples=2)

    def run(world_size: int, state: Any, steps: int) -> tuple[list[list[int]], Any]:
        shares, states = [], []
        for rank in range(world_size):
            with hr.Loader(
                numbered,
                96 // world_size,
                transform=FLAT,
                seed=2,
                order=order,
                job=hr.Job(rank=rank, world_size=world_size),
                drop_last=True,
            ) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                mine: list[list[int]] = []
                while len(mine) < steps:
                    for batch in loader:
                        mine.append(payload_ids(batch))
                        if len(mine) == steps:
                            break
                shares.append(mine)
                states.append(loader.state_dict())
        assert all(each == states[0] for each in states)
        steps_of = zip(*shares, strict=True)
        return [[s for row in zip(*step, strict=True) for s in row] for step in steps_of], states[0]

    whole, _ = run(1, None, 6)
    state, got = None, []
    for world_size in (8, 3, 16):
        part, state = run(world_size, state, 2)
        got += part
    assert got == whole


@pytest.mark.parametrize(
    ("saved", "left_out"),
    [
        (orders.Redox(chunks_per_virtual=3, ties="first"), "redox"),
        (orders.Redox(chunks_per_virtual=3, ties="first"), orders.Redox(ties="first")),
        (orders.Batch(ranks_per_node=2), "batch"),
        (orders.Epoch(pool="300%", join_share=0.5), orders.Epoch(join_share=0.5)),
    ],
    ids=str,
)
def test_what_is_left_out_is_taken_from_the_state(
    numbered: Path, saved: orders.Order, left_out: orders.Order | str
) -> None:
    with make(numbered, "exact", order=saved) as loader:
        iteration = iter(loader)
        next(iteration)
        state = loader.state_dict()
        rest = [payload_ids(batch) for batch in iteration]
    with make(numbered, "exact", order=left_out) as other:
        other.load_state_dict(state)
        assert epoch_ids(other) == rest
        assert other.state_dict()["order_parameters"] == state["order_parameters"]


def test_a_default_that_is_given_must_be_the_states_too(numbered: Path) -> None:
    with make(numbered, "exact", order=orders.Epoch(pool="300%", join_share=0.5)) as loader:
        state = loader.state_dict()
    with (
        make(numbered, "exact", order=orders.Epoch(pool="300%", join_share=0.25)) as other,
        pytest.raises(errors.FailedPreconditionError, match=r"join_permille 500.*with 250"),
    ):
        other.load_state_dict(state)


def test_threads_that_share_an_iterator_get_each_batch_once(numbered: Path) -> None:
    with make(numbered, "epoch", batch_size=1) as loader:
        for _ in range(3):
            iterator = iter(loader)
            taken: list[list[int]] = []

            def take(source: Any, into: list[list[int]]) -> None:
                into.extend(map(payload_ids, source))

            threads = [threading.Thread(target=take, args=(iterator, taken)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(flat(taken)) == list(range(COUNT))


def test_parameters_left_out_are_the_states_and_others_must_agree(numbered: Path) -> None:
    with make(numbered, "epoch") as loader:
        next(iter(loader))
        state = loader.state_dict()
        rest = epoch_ids(loader)
    assert json.loads(json.dumps(state)) == state
    with make(numbered, "epoch", order="epoch") as other:
        assert other.state_dict()["order_parameters"] != state["order_parameters"]
        other.load_state_dict(state)
        assert other.state_dict() == state
        next(iter(other))
    del rest
    different = orders.Epoch(pool="50%", pools=2, block_samples=5)
    with (
        make(numbered, "epoch", order=different) as other,
        pytest.raises(errors.FailedPreconditionError, match="saved with pools 3 of order 'epoch'"),
    ):
        other.load_state_dict(state)
    with (
        make(numbered, "exact") as other,
        pytest.raises(errors.FailedPreconditionError, match="saved with order 'epoch'"),
    ):
        other.load_state_dict(state)
    with make(numbered, "batch") as one:
        state = one.state_dict()
    with (
        make(numbered, "batch", order=orders.Batch(costs=np.arange(COUNT))) as other,
        pytest.raises(errors.FailedPreconditionError, match="costs"),
    ):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("random", "must be one of 'exact', 'batch', 'epoch', 'redox'"),
        (7, "must be one of"),
        (orders.Epoch(pool=100), "pool"),
        (orders.Epoch(pool=-1), "pool"),
        (orders.Epoch(pool="nonsense"), "pool"),
        (orders.Epoch(pool=2**70), "pool"),
        (orders.Epoch(pool="0%"), "pool"),
        (orders.Epoch(pools=0), "pools"),
        (orders.Epoch(pools=10**6), "pools"),
        (orders.Epoch(block_samples=0), "block_samples"),
        (orders.Epoch(join_share=2), "join_share"),
        (orders.Epoch(first_fill=-0.5), "first_fill"),
        (orders.Batch(homes=[1, 2]), "homes"),
        (orders.Batch(homes=np.zeros((3, COUNT), int)), r"homes.*shape \(3, 97\)"),
        (orders.Batch(homes=[[1], [2, 3]]), "homes"),  # type: ignore[list-item]
        (orders.Epoch(pool=1.5), "pool"),  # type: ignore[arg-type]
        (orders.Epoch(pool="-5%"), "pool.*'10%'"),
        (orders.Epoch(join_share="3"), "join_share"),  # type: ignore[arg-type]
        (orders.Epoch(first_fill=float("nan")), "first_fill"),
        (orders.Redox(memory=float("nan")), "memory"),  # type: ignore[arg-type]
        (orders.Batch(homes=np.full(COUNT, 5)), "home"),
        (orders.Batch(costs=[0.5] * COUNT), "costs"),
        (orders.Batch(costs="weight"), "costs"),
        (orders.Batch(ranks_per_node=0), "ranks_per_node"),
        (orders.Redox(mapping="odd"), "mapping"),
        (orders.Redox(chunks_per_virtual=0), "chunks_per_virtual"),
        (orders.Redox(nodes=0), "nodes"),
        (orders.Redox(slots=0), "slots"),
        (orders.Redox(slots="ten %"), "slots.*'10%'"),
        (orders.Redox(slots="10%", chunks_per_virtual=3), "slots.*10%.*chunks_per_virtual=3"),
    ],
    ids=str,
)
def test_wrong_parameters_give_one_clear_error(numbered: Path, order: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.Loader(numbered, 12, transform=FLAT, order=order)


def test_orders_of_blocks_refuse_what_they_cannot_keep(numbered: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="sampler with order='epoch'"):
        hr.Loader(numbered, 12, transform=FLAT, order="epoch", sampler=range(COUNT))
    with pytest.raises(errors.InvalidArgumentError, match="shuffle"):
        hr.Loader(numbered, 12, transform=FLAT, order="epoch", shuffle=False)


def test_one_sample_and_one_block(tmp_path: Path) -> None:
    from loader_data import write_numbered

    tiny = write_numbered(tmp_path / "tiny", (1,))
    for order in ("exact", "batch", "epoch", "redox"):
        with hr.Loader(tiny, 4, transform=FLAT, order=order) as loader:
            assert [epoch_ids(loader) for _ in range(2)] == [[[0]], [[0]]]


def test_alike_labels_in_blocks_are_warned_of_with_the_numbers_and_the_remedy(
    numbered: Path, tmp_path: Path
) -> None:
    small = orders.Epoch(pool="50%", pools=3, block_samples=5)
    with (
        pytest.warns(
            RuntimeWarning, match=r"1\.[0-9]+ times .*headrace pack.* raise the order's pool="
        ) as told,
        hr.Loader(numbered, 12, transform=FLAT, order=small) as loader,
    ):
        expected = loader.expected_inflation
    assert len(told) == 1
    assert told[0].filename == __file__
    assert expected is not None
    assert 1.05 < (expected["of_labels"] or 0) < (expected["of_blocks"] or 0)
    assert 0.8 < (expected["correlation"] or 0) <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for order in (orders.Epoch(pool="300%"), "exact", "batch"):
            hr.Loader(numbered, 12, transform=FLAT, order=order).close()
        write_pack(hr.open(numbered), tmp_path / "pack", PackParameters(block_samples=5))
        same = orders.Epoch(pool="50%", pools=3)
        with hr.Loader(tmp_path / "pack", 12, transform=FLAT, order=same) as shuffled:
            assert abs((shuffled.expected_inflation or {})["correlation"] or 0) < 0.2


def test_explain_says_that_a_sample_comes_with_its_block(numbered: Path) -> None:
    with make(numbered, "epoch") as loader:
        rows = loader.explain(0).rows
        first = epoch_ids(loader)[0]
    assert [row["sample"] for row in rows if row["field"] == "image"] == first
    assert {row["source"] for row in rows if row["field"] == "image"} == {"block"}


def test_a_left_loop_a_closed_loader_and_a_new_epoch_lose_nothing(numbered: Path) -> None:
    with make(numbered, "epoch") as loader:
        reference = [epoch_ids(loader) for _ in range(3)]
    with make(numbered, "epoch") as loader:
        for epoch in (0, 1):
            for step, batch in enumerate(loader):
                assert payload_ids(batch) == reference[epoch][step]
                if step == epoch:
                    break
        assert epoch_ids(loader) == reference[2]


def test_the_exact_model_is_what_batch_cuts_its_batches_from(numbered: Path) -> None:
    permutation = model.permutation(COUNT, 6, 0)
    with make(numbered, "batch") as loader:
        batches = epoch_ids(loader)
    assert [sorted(b) for b in batches] == [
        sorted(permutation[i : i + 12]) for i in range(0, COUNT, 12)
    ]


@pytest.mark.parametrize("memory", ["3MiB", "12MiB", "16MiB", "40MiB"])
def test_blocks_pinned_in_spare_memory_are_not_read_again(tmp_path: Path, memory: str) -> None:
    dataset = tmp_path / "large"
    random = np.random.default_rng(1)
    for label in range(2):
        (dataset / f"c{label}").mkdir(parents=True)
        for i in range(48):
            (dataset / f"c{label}" / f"{i}.jpg").write_bytes(random.bytes(60_000 + 100 * i))
    stored = sum(path.stat().st_size for path in dataset.glob("*/*"))
    order = orders.Epoch(pool="20%", pools=1, block_samples=4)

    with pytest.raises(
        errors.InvalidArgumentError, match=r"keeps 1\.. MiB resident; raise memory="
    ):
        hr.Loader(dataset, 8, order=order, memory="2MiB")

    def epochs(**options: Any) -> tuple[list[list[int]], int, dict[str, Any]]:
        with hr.Loader(
            dataset, 8, seed=3, order=order, output=hr.Output(ids=True), epochs=3, **options
        ) as loader:
            ids = [[int(i) for batch in loader for i in batch.sample_id] for _ in range(3)]
            stats = loader.stats()
            return ids, stats["bytes"]["read"], dict(stats["memory"])

    ids, read, used = epochs(memory=memory)
    plain, plain_read, plain_used = epochs()
    assert ids == plain  # what is kept in memory changes nothing that is delivered
    assert all(sorted(epoch) == list(range(96)) for epoch in ids)
    assert plain_used["pinned"] == 0
    assert 3 * stored <= plain_read <= 3 * stored * 1.01
    pinned = min(used["pinned"], stored)
    assert used["pinned"] <= used["pinned_budget"]
    # The first of three epochs reads all; blocks that are pinned are read that once.
    # So is one that the next epoch asked for before it had come.
    expected = 3 * stored - 2 * pinned
    assert abs(read - expected) <= 0.1 * stored
    assert (pinned == stored) == (memory == "40MiB")


def test_a_restart_reads_again_what_was_resident_and_says_so(numbered: Path) -> None:
    order = orders.Epoch(pool="50%", pools=1, block_samples=5)
    options: dict[str, Any] = {"transform": FLAT, "order": order, "epochs": 1}
    with hr.Loader(numbered, 12, **options) as loader:
        iteration = iter(loader)
        for _ in range(4):
            next(iteration)
        state = loader.state_dict()
    with hr.Loader(numbered, 12, **options) as again:
        again.load_state_dict(state)
        rest = flat(epoch_ids(again))
        counted = again.stats()["bytes"]
    assert len(rest) == COUNT - 48
    assert 0 < counted["again"] < counted["read"]
    stored = sum(path.stat().st_size for path in numbered.glob("*/*.jpg"))
    assert counted["read"] - counted["again"] < 0.75 * stored


@pytest.mark.parametrize("order", _core.order_names())
def test_without_shuffle_samples_come_in_sequence_or_that_is_refused(
    numbered: Path, order: Any
) -> None:
    if order in ("epoch", "redox"):
        message = (
            f"order {order}: shuffle=False, but .*; use order 'exact' to have them in sequence"
        )
        with pytest.raises(errors.InvalidArgumentError, match=message):
            hr.Loader(numbered, 6, transform=FLAT, order=order, shuffle=False)
        return
    of_ranks = []
    for rank in range(2):
        options = {"job": hr.Job(rank=rank, world_size=2), "drop_last": True}
        with hr.Loader(numbered, 6, transform=FLAT, order=order, shuffle=False, **options) as one:
            of_ranks.append(epoch_ids(one))
    for step, parts in enumerate(zip(*of_ranks, strict=True)):
        assert sorted(flat(parts)) == list(range(12 * step, 12 * step + 12))
        assert all(part == sorted(part) for part in parts)
