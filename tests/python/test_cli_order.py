"""`headrace order`, and the streams of steps behind it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import order_model as model
import pytest
from test_cli import run, run_json

import headrace as hr
from headrace import _core, errors

REDOX = ("--samples", "9", "--order", "redox")


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_stream_of_exact_is_the_model_s(ranks: int, drop_last: bool) -> None:
    for rank in range(ranks):
        stream = _core.OrderStream(
            "exact",
            {},
            index=(101, 8),
            batch_size=7,
            world_size=ranks,
            rank=rank,
            seed=5,
            drop_last=drop_last,
            epochs=2,
        )
        steps = list(stream)
        wanted = [
            batch
            for epoch in range(2)
            for batch in model.exact_epoch(
                101, 7, seed=5, epoch=epoch, rank=rank, world_size=ranks, drop_last=drop_last
            )
        ]
        assert [step.ids.tolist() for step in steps] == wanted
        assert len(steps) == 2 * stream.steps_per_epoch
        assert [step.ends_epoch for step in steps].count(True) == 2
        assert all(step.slots.tolist() == list(range(len(step.ids))) for step in steps)
        assert all(set(step.block_read.tolist()) == {-1} for step in steps)


@pytest.mark.parametrize("order", _core.order_names())
def test_ids_in_bulk_are_those_of_the_steps_from_any_step(order: str) -> None:
    def stream(**start: int) -> _core.OrderStream:
        return _core.OrderStream(
            order, {}, index=(500, 10), batch_size=32, seed=2, epochs=2, **start
        )

    steps = list(stream())
    bulk = stream()
    assert bulk.ids(3).tolist() == np.concatenate([step.ids for step in steps[:3]]).tolist()
    assert bulk.ids().tolist() == np.concatenate([step.ids for step in steps[3:]]).tolist()
    assert len(bulk.ids()) == 0
    later = stream(epoch=1, step=4)
    assert next(later).ids.tolist() == steps[stream().steps_per_epoch + 4].ids.tolist()
    assert sorted(np.concatenate([step.ids for step in steps]).tolist()) == sorted(
        [*range(500), *range(500)]
    )


def test_block_reads_keep_what_deliveries_and_releases_name() -> None:
    stream = _core.OrderStream("epoch", {}, index=(500, 10), batch_size=16, epochs=1)
    kept: set[tuple[int, int]] = set()
    for step in stream:
        for number, first, count, positions, again in step.block_reads:
            assert not again
            kept |= {(number, first + i) for i in (positions or range(count))}
        named = list(zip(step.block_read.tolist(), step.ids.tolist(), strict=True))
        for each in named + step.releases:
            kept.remove(each)
    assert not kept


def test_what_cannot_be_planned_is_an_error_that_names_it() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="order: got 'best', must be one of"):
        _core.OrderStream("best", {}, index=(10, 1))
    with pytest.raises(errors.InvalidArgumentError, match="has no parameter 'speed'"):
        _core.resolve_order("exact", {"speed": 1}, index=(10, 1))
    with pytest.raises(errors.OutOfRangeError, match="starting at epoch 0 step 9"):
        _core.OrderStream("exact", {}, index=(10, 1), batch_size=2, step=9)
    with pytest.raises(errors.InvalidArgumentError, match="seed: got -1"):
        _core.OrderStream("exact", {}, index=(10, 1), seed=-1)
    with pytest.raises(errors.InvalidArgumentError, match="blocks: got 10 samples in blocks of 0"):
        _core.OrderStream("exact", {}, index=(10, 0))
    with pytest.raises(
        errors.InvalidArgumentError, match="got 9 epochs, 0 nodes, 1 times the mean"
    ):
        _core.used_more_often(9, 0, 1)
    with pytest.raises(TypeError, match="index must be"):
        _core.OrderStream("exact", {}, index=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument; there are index"):
        _core.OrderStream("exact", {}, index=(10, 1), sed=1)  # type: ignore[call-arg]


def test_the_command_prints_the_ids_in_order_and_their_hash() -> None:
    wanted = model.permutation(100, seed=7, epoch=0)
    arguments = ("order", "--samples", 100, "--seed", 7)
    text = run(*arguments, "--print", 100).stdout
    assert [int(word) for word in text.split()] == wanted
    assert "... 60 more" in run(*arguments, "--print", 40).stdout
    digest = f"{_core.hash64(np.array(wanted, np.uint64).tobytes()):016x}"
    assert run(*arguments, "--hash").stdout == digest + "\n"
    found = run_json(*arguments, "--print", 3)
    assert (found["hash"], found["ids"], found["count"]) == (digest, wanted[:3], 100)


def test_the_global_order_is_the_same_for_any_number_of_ranks() -> None:
    for order in ("exact", "epoch"):
        arguments = ("order", "--samples", 960, "--batch", 96, "--order", order, "--hash")
        extra = ("--set", "pools=4") if order == "epoch" else ()
        hashes = {run_json(*arguments, *extra, "--ranks", n)["hash"] for n in (1, 3, 8)}
        assert len(hashes) == 1
    one = run_json("order", "--samples", 12, "--ranks", 3, "--rank", 1, "--print", 64)
    assert one["ids"] == model.permutation(12, 0, 0)[1::3]


def test_every_parameter_of_an_order_is_set_by_name() -> None:
    arguments = ("order", "--order", "redox", "--samples", 12_800, "--block-samples", 64, "--hash")
    settings = ("chunks_per_virtual=10", "nodes=3", "refill=max_fill", "prefetch=0")
    options = [word for setting in settings for word in ("--set", setting)]
    found = run_json(*arguments, *options)
    assert found["parameters"]["chunks_per_virtual"] == 10
    assert found["parameters"]["nodes"] == 3
    assert found["misses"] == found["loads_per_chunk"] * 200
    assert 0.6 < found["remote_requests"] / 12_800 < 0.72
    hyphens = ("--set", "chunks-per-virtual=10", *options[2:])
    assert run_json(*arguments, *hyphens)["hash"] == found["hash"]
    assert run_json(*arguments, "--set=refill=random")["hash"] != found["hash"]


@pytest.mark.parametrize("order", ["exact", "epoch", "redox"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_audit_of_uses_counts_how_often_each_sample_is_delivered(
    order: str, drop_last: bool
) -> None:
    samples, batch, epochs = 1003, 50, 6
    job = ["order", "--order", order, "--samples", samples, "--block-samples", 8, "--batch", batch]
    job += ["--epochs", epochs, "--ranks", 2, *(["--drop-last"] if drop_last else [])]
    found = run_json(*job, "--print", samples * (epochs + 1))
    uses = np.bincount(found["ids"], minlength=samples)
    assert found["uses"] == {str(n): int((uses == n).sum()) for n in sorted(set(uses.tolist()))}
    if drop_last:  # Each epoch leaves three out: most come each time, and none is always dropped.
        assert found["count"] == epochs * 1000
        assert found["uses"][str(epochs)] >= samples - 3 * epochs
        assert min(map(int, found["uses"])) > epochs // 2
    else:  # One comes twice for an even number.
        assert found["count"] == epochs * 1004
        assert set(found["uses"]) <= {str(epochs), str(epochs + 1), str(epochs + 2)}
    one_rank = run_json(*job, "--rank", 1, "--hash")["uses"]
    assert sum(int(often) * n for often, n in one_rank.items()) == found["count"] // 2


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("K=64",), ("block_samples=64",)),
        (("N=3", "P=40", "PCS=5"), ("nodes=3", "prefetch=40", "chunks_per_virtual=5")),
        (("M=20",), ("chunks_per_virtual=10",)),  # of 200 chunks
        (("M=13", "K=32"), ("chunks_per_virtual=31", "block_samples=32")),  # of 400: 30.8
        (("C=10%",), ("chunks_per_virtual=10",)),
        (("C=12.4%",), ("chunks_per_virtual=9",)),
        (("C=1000000",), ("chunks_per_virtual=1",)),
    ],
)
def test_the_papers_words_set_the_parameters_of_redox(
    words: tuple[str, ...], names: tuple[str, ...]
) -> None:
    job = ("order", "--order", "redox", "--samples", 12_800, "--hash")
    found = run_json(*job, *(word for setting in words for word in ("--set", setting)))
    blocks = [name.partition("=")[2] for name in names if name.startswith("block_samples")]
    options = [word for name in names if "block" not in name for word in ("--set", name)]
    assert found == run_json(*job, *options, "--block-samples", *(blocks or [64]))
    assert {f"{name}={value}" for name, value in found["parameters"].items()} >= {
        name for name in names if "block" not in name
    }


def test_slots_of_a_dataset_in_the_papers_word_are_those_of_the_class(source_pack: Path) -> None:
    dataset = hr.open(source_pack)
    for memory in ("30%", "40kB"):
        spec = hr.orders.Redox(slots=memory).to_core(dataset)
        found = run_json("order", source_pack, "--order", "redox", "--hash", "--set", f"C={memory}")
        chunks = found["parameters"]["chunks_per_virtual"]
        assert chunks == spec.parameters["chunks_per_virtual"] > 1


def test_a_dataset_is_planned_by_its_own_blocks(source_pack: Path) -> None:
    options = ("--order", "epoch", "--print", 64)
    found = run_json("order", source_pack, *options, "--batch", 4)
    assert found["samples"] == 60
    assert found["blocks"] > 1
    assert sorted(found["ids"]) == list(range(60))
    assert run_json("order", *options, source_pack, "--batch", 4) == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either a DATASET"),
        (("/data", "--samples", "3"), "opening dataset /data"),
        (("--samples", "9", "--pools", "96"), "option --pools: not understood; a parameter of the"),
        (("--samples", "9", "--pools", "96"), "is given as --set pools=96; see --help"),
        (("--pool-bytes=1", "--samples", "9"), "is given as --set pool_bytes=1; see --help"),
        (("--samples", "9", "--pools"), "is given as --set pools=VALUE; see --help"),
        (("--samples", "9", "--pools", "--hash"), "is given as --set pools=VALUE; see --help"),
        (("--samples", "9", "--set", "pools=2"), "has no parameter 'pools'"),
        (("--samples", "9", "--set", "K=2"), "order exact: has no parameter 'K'"),
        (
            (*REDOX, "--block-samples", "2", "--set", "K=2"),
            "--set K=2: is --block-samples, which is given as 2; give one of the two",
        ),
        ((*REDOX, "--set", "K=0"), "--set K: got 0, must be in [1, "),
        ((*REDOX, "--set", "M=2"), "--set M: got 2, must be in [1, 1]"),
        ((*REDOX, "--set", "M=two"), "--set M: got 'two', must be a whole number"),
        ((*REDOX, "--set", "C=x"), "--set C"),
        ((*REDOX, "--set", "PCS=2", "--set", "M=1"), "which --set PCS=2 gives, too; give one"),
        ((*REDOX, "--set", "P=x"), "must be a whole number"),
        (("--samples", "9", "--print", "1", "--rank", "1"), "--rank: got 1"),
        (("--samples", "9", "--print", "-1"), "--print: got -1"),
        (("--samples", "9", "--batch", "0"), "--batch: got 0"),
        (("--samples", "9", "--uses", "--hash"), "--hash with --uses: choose one"),
        (("--samples", "9", "--uses", "--ranks-per-node", "2"), "--ranks-per-node: got 2"),
        (
            ("--samples", "9", "--ranks", "3", "--uses", "--ranks-per-node", "2"),
            "--ranks-per-node: got 2, must divide --ranks 3",
        ),
        (("--samples", "99", "--order", "epoch", "--set", "pools=x"), "must be a whole number"),
        (
            ("--samples", "99", "--order", "epoch", "--memory", "1%", "--set", "pool_bytes=9"),
            "pool_bytes is given, too",
        ),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments: tuple[str, ...], message: str) -> None:
    text = run("order", *arguments, code=2).stderr
    assert message in text
    assert text.count("\n") == 1


@pytest.mark.parametrize("order", _core.order_names())
@pytest.mark.parametrize(("ranks", "ranks_per_node", "rank"), [(4, 1, 2), (6, 2, 3), (2, 2, 0)])
def test_uses_are_those_of_the_node_s_samples(
    order: str, ranks: int, ranks_per_node: int, rank: int
) -> None:
    job = ("order", "--samples", 600, "--ranks", ranks, "--epochs", 5, "--order", order)
    job = (*job, "--batch", 24, "--block-samples", 10)
    found = run_json(*job, "--uses", "--ranks-per-node", ranks_per_node, "--rank", rank)
    first = rank // ranks_per_node * ranks_per_node
    used: Counter[int] = Counter()
    for of_node in range(first, first + ranks_per_node):
        used.update(run_json(*job, "--print", 3000, "--rank", of_node)["ids"])
    counts = Counter(used[sample] for sample in range(600))
    assert found["uses"] == [counts[times] for times in range(max(counts) + 1)]
    nodes = ranks // ranks_per_node
    assert (found["node"], found["nodes"]) == (rank // ranks_per_node, nodes)
    assert found["mean"] == 5 / nodes
    least = math.ceil(5 / nodes)
    for times, row in enumerate(found["more_often"], least):
        assert row["uses"] == times
        assert row["samples"] == sum(counts[more] for more in counts if more > times)
        ways = [(math.comb(5, k), k) for k in range(times + 1, 6)]
        share = sum(n * (nodes - 1) ** (5 - k) / nodes**5 for n, k in ways)
        assert row["by_chance"] == pytest.approx(600 * share)


@pytest.mark.parametrize("order", _core.order_names())
def test_what_drop_last_leaves_out_changes_from_epoch_to_epoch(order: str) -> None:
    """A tenth is dropped: in 60 epochs a sample is used 54 times, with a deviation of 2.3."""
    job = ("order", "--samples", 600, "--batch", 60 * 9, "--drop-last", "--epochs", 60)
    uses = run_json(*job, "--order", order, "--block-samples", 10, "--uses")["uses"]
    assert sum(times * samples for times, samples in enumerate(uses)) == 60 * 540
    assert min(times for times, samples in enumerate(uses) if samples) > 54 - 6 * 2.3


def test_a_node_s_uses_are_those_that_nopfs_prints() -> None:
    """Dryden et al., SC'21, section 3: 16 nodes, 90 epochs of ImageNet-1k; a sample is used 6 times
    on average, and 31,635 are used more than 10 times, 31,863 in their simulation."""
    text = run("order", "--samples", 1_281_167, "--ranks", 16, "--epochs", 90, "--uses").stdout
    assert "it uses each of 1,281,167 samples 5.625 times on average" in text
    rows = [[float(word.replace(",", "")) for word in row.split()] for row in text.splitlines()[2:]]
    (counted, by_chance) = next((row[1], row[2]) for row in rows if row[0] == 10)
    assert by_chance == 31_634.7
    deviation = math.sqrt(by_chance * (1 - by_chance / 1_281_167))
    assert abs(counted - by_chance) < 3 * deviation
    assert abs(31_863 - by_chance) < 3 * deviation
