"""Measures of shuffle quality: against slow NumPy, and through the command line."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run, run_json

from headrace import _core
from headrace.cli._parts.orders import make_source
from headrace.cli._plots import quality_plot

SAMPLES, BLOCK, BATCH = 4096, 16, 32
WITHOUT_DATA = ("order", "--samples", SAMPLES, "--block-samples", BLOCK, "--batch", BATCH)


def report(*epochs: np.ndarray, **options: Any) -> dict[str, Any]:
    blocks = _core.Blocks.uniform(options.pop("samples", SAMPLES), options.pop("block", BLOCK))
    meter = _core.QualityMeter(blocks, batch=BATCH, **options)
    for ids in epochs:
        meter.add(ids.astype(np.uint64))
        meter.end_epoch()
    return meter.report()


def of(found: dict[str, Any], name: str) -> float:
    return float(next(test["value"] for test in found["tests"] if test["name"] == name))


def test_measures_are_those_of_slow_numpy() -> None:
    random = np.random.default_rng(3)
    ids, again = random.permutation(SAMPLES), random.permutation(SAMPLES)
    found = report(ids, again)
    positions = np.argsort(ids)
    assert of(found, "position_correlation") == pytest.approx(
        np.mean([np.corrcoef(np.arange(SAMPLES), each)[0, 1] for each in (ids, again)])
    )
    table = np.zeros((SAMPLES // BATCH, SAMPLES // BLOCK))
    np.add.at(table, (np.arange(SAMPLES) // BATCH, ids // BLOCK), 1)
    mean = BATCH * BLOCK / SAMPLES
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    chi_square = ((table - mean) ** 2 / mean).sum() * (SAMPLES - 1) / SAMPLES
    assert found["vif_of_epochs"][0][str(BATCH)] == pytest.approx(chi_square / freedom)

    entropies = []
    for each in (ids, again):
        shares = np.unique(np.abs(np.diff(each)), return_counts=True)[1] / (SAMPLES - 1)
        entropies.append(-(shares * np.log2(shares)).sum())
    assert of(found, "neighbour_entropy") == pytest.approx(np.mean(entropies))
    next_same = [(each[1:] // BLOCK == each[:-1] // BLOCK).mean() for each in (ids, again)]
    by_chance = (BLOCK - 1) / (SAMPLES - 1)
    assert of(found, "same_group_next") == pytest.approx(
        (np.mean(next_same) - by_chance) / (1 - by_chance)
    )
    before, after = positions // BATCH, np.argsort(again) // BATCH
    together = np.unique(before * SAMPLES + after, return_counts=True)[1]
    pairs = SAMPLES * (BATCH - 1) / 2
    assert of(found, "pair_recurrence") == pytest.approx(
        (together * (together - 1) / 2).sum() / (pairs**2 / (SAMPLES * (SAMPLES - 1) / 2))
    )
    assert of(found, "epoch_correlation") == pytest.approx(
        np.corrcoef(positions, np.argsort(again))[0, 1]
    )


def test_the_order_exact_is_uniform_and_unshuffled_is_poor() -> None:
    found = run_json(*WITHOUT_DATA, "--epochs", "2", "--drop-last")
    assert found["verdict"] == "excellent"
    assert (found["missing"], found["duplicated"], found["dropped"]) == (0, 0, 0)
    assert set(found["vif"]) == {"32", "256", "2048"}
    assert found["vif"]["32"] == pytest.approx(1, abs=0.05)
    sequential = run_json(*WITHOUT_DATA, "--no-shuffle")
    assert sequential["verdict"] == "poor"
    assert sequential["vif"]["32"] > 10
    assert sequential["change"] == "shuffle: leave --no-shuffle out, as Loader(shuffle=True)"


@pytest.mark.parametrize("samples", [10_000, 1_000_000, 10_000_000])
def test_the_default_epoch_is_good_and_a_small_pool_says_which_is(samples: int) -> None:
    options = ("--samples", samples, "--block-samples", 64, "--order", "epoch")
    found = run_json("order", *options)
    assert found["verdict"] in ("excellent", "good")
    assert found["change"] == ""
    if samples == 10_000_000:
        return  # Once: it takes seconds.
    small = run_json("order", *options, "--memory", "3%")
    assert small["verdict"] in ("fair", "poor")
    assert small["change"].startswith(("keep ", "leave --memory and pool_bytes out: by default"))
    pool = ()
    if small["change"].startswith("keep "):
        pool = ("--memory", small["change"].split("keep ")[1].split()[0].replace(",", ""))
    assert run_json("order", *options, *pool)["verdict"] in ("excellent", "good")


@pytest.mark.parametrize("samples", [10_000, 1_000_000, 10_000_000])
def test_exact_is_the_best_order(samples: int) -> None:
    def effects(order: str) -> tuple[str, dict[str, float]]:
        found = run_json("order", "--samples", samples, "--block-samples", 64, "--order", order)
        return found["verdict"], {each["name"]: each["value"] for each in found["effects"]}

    verdict, exact = effects("exact")
    assert verdict == "excellent"
    _, epoch = effects("epoch")
    for name, best in {"batch_inflation": 1, "window_drift": 0}.items():
        assert exact[name] == pytest.approx(best, abs=0.01)
        assert abs(exact[name] - best) <= abs(epoch[name] - best)


def write_sizes(path: Path, count: int, sample_bytes: int) -> Path:
    """An index of nine classes, one after the other, in a file that is all holes."""
    stored = path.with_suffix(".bin")
    with stored.open("wb") as file:
        file.truncate(count * sample_bytes)
    sizes = np.full(count, sample_bytes, np.uint64)
    contents = _core.IndexContents(count, str(path.parent))
    mtime = np.array([stored.stat().st_mtime_ns])
    contents.add_objects([stored.name], np.array([count * sample_bytes], np.uint64), mtime)
    extents = (0 * sizes, np.cumsum(sizes, dtype=np.uint64) - sizes, sizes)
    contents.add_extent_field("sample", ("array", "uint8", (sample_bytes,)), extents)
    contents.add_inline_field("label", ("array", "int64", ()), np.arange(count) * 9 // count)
    contents.set_attribute("format", "test")
    _core.write_index(contents, str(path))
    return path


@pytest.mark.parametrize("memory", ["10%", "30%", None])
@pytest.mark.parametrize(
    ("samples", "sample_bytes"), [(3157, 95_000), (20_000, 100_000), (1_000_000, 100_000)]
)
def test_who_follows_the_advice_gets_a_good_order(
    tmp_path: Path, samples: int, sample_bytes: int, memory: str | None
) -> None:
    """The first is as large as the demo's pack, which README.md grades."""
    dataset = write_sizes(tmp_path / "set.hri", samples, sample_bytes)
    given = () if memory is None else ("--memory", memory)
    found = run_json("order", dataset, "--order", "epoch", *given)
    if found["verdict"] in ("excellent", "good"):
        assert (found["change"], found["change_to"]) == ("", None)
        return
    changed = found["change_to"]
    options = [f"--set={name}={value}" for name, value in changed["parameters"].items()]
    for option in options:  # In words, but for a pool that is left to the order.
        assert option.removeprefix("--set=") in found["change"]
    assert ("leave --memory and pool_bytes out" in found["change"]) == (
        memory is not None and "pool_bytes" not in changed["parameters"]
        and changed["order"] == "epoch"
    )  # fmt: skip
    better = run_json("order", dataset, "--order", changed["order"], *options)
    assert better["verdict"] in ("excellent", "good"), found["change"]
    labels = next(each for each in found["effects"] if each["name"] == "label_mix")
    assert ("headrace pack" in found["change"]) == (labels["grade"] in ("fair", "poor"))


def test_a_pool_that_only_fills_too_late_is_kept_and_filled_first(tmp_path: Path) -> None:
    dataset = write_sizes(tmp_path / "set.hri", 8000, 100_000)
    found = run_json("order", dataset, "--order", "epoch", "--memory", "60%")
    assert found["verdict"] == "fair"
    pool, first_fill = (found["parameters"][each] for each in ("pool_bytes", "first_fill_permille"))
    assert first_fill < 1000
    wanted = {"pool_bytes": pool, "first_fill_permille": 1000}
    assert found["change_to"] == {"order": "epoch", "parameters": wanted}
    assert found["change"].startswith("keep the pool; and have the first batch wait for all of it")


def test_the_advice_on_a_log_is_of_the_log(tmp_path: Path) -> None:
    def found(log: np.ndarray[Any, Any], *options: object) -> dict[str, Any]:
        np.save(tmp_path / "log.npy", log)
        return run_json(*WITHOUT_DATA, "--ids", tmp_path / "log.npy", *options)

    random = np.random.Generator(np.random.PCG64(4))
    twice = np.concatenate([random.permutation(SAMPLES) for _ in range(2)])
    told = found(twice)
    assert told["verdict"] == "broken"
    assert told["change"].endswith("if the log is of 2 epochs, say so: --epochs 2")
    assert found(twice, "--epochs", 2)["change"] == ""
    assert "epochs" not in found(twice[: SAMPLES + 9])["change"]
    in_order = found(np.arange(SAMPLES))
    assert in_order["change"].startswith("shuffle: the log follows the order of storage")


@pytest.mark.parametrize("block", [1, 16, 64])
def test_the_inflation_expected_of_a_small_dataset_is_possible(block: int) -> None:
    options = ("--samples", 100, "--block-samples", block, "--order", "epoch")
    expected = run_json("order", *options)["expected"]
    assert expected["sharing"] >= 0
    assert 1 <= expected["of_blocks"] <= 100


def test_the_mix_of_a_dataset_s_labels_is_graded_beside_its_blocks() -> None:
    # Blocks of one label: what inflates blocks inflates labels.
    blocks = _core.Blocks.uniform(SAMPLES, BLOCK)
    of_block = (np.arange(SAMPLES) // BLOCK % 8).astype(np.uint32)
    random = np.random.default_rng(5)
    spread = random.permutation(of_block)
    order = (random.permutation(SAMPLES // BLOCK)[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
    grades = {}
    for name, labels in (("sorted", of_block), ("spread", spread)):
        meter = _core.QualityMeter(blocks, batch=BATCH, labels=labels)
        meter.add(order.astype(np.uint64))
        meter.end_epoch()
        found = meter.report()
        grades[name] = {each["name"]: each["grade"] for each in found["effects"]}
        assert set(found["label_vif"]) == set(found["vif"])
    assert grades["sorted"]["label_mix"] == grades["sorted"]["batch_inflation"] == "poor"
    assert grades["spread"]["label_mix"] == "excellent"


def test_the_pool_is_given_as_a_share_and_expected_to_inflate_as_it_does() -> None:
    options = ("--samples", 65536, "--block-samples", 64, "--batch", 256, "--order", "epoch")
    found = run_json("order", *options, "--memory", "10%", "--epochs", "3")
    assert found["parameters"]["pool_bytes"] == 6554
    assert found["missing"] == found["duplicated"] == 0
    assert found["expected"]["of_blocks"] - 1 == pytest.approx(found["vif"]["256"] - 1, rel=0.25)
    half = run_json("order", *options, "--memory", "30000", "--set", "pools=4")
    assert half["parameters"]["pool_bytes"] == 30000
    assert half["parameters"]["pools"] == 4
    assert half["vif"]["256"] < found["vif"]["256"]


def test_redox_is_held_against_what_it_was_asked_for() -> None:
    found = run_json(*WITHOUT_DATA, "--order", "redox", "--set", "chunks_per_virtual=4")
    assert 0.5 < found["more"]["redirect_rate"] <= 1
    assert found["more"]["redirect_late_max"] > 0
    assert found["counters"]["misses"] > SAMPLES / BLOCK


def test_ranks_and_nodes_are_measured_with_the_share_they_saw() -> None:
    found = run_json(*WITHOUT_DATA, "--ranks", "4", "--ranks-per-node", "2", "--epochs", "2")
    assert len(found["per_rank"]) == 4
    assert len(found["per_node"]) == 2
    assert found["seen_share"] == 1
    # A quarter in each of two epochs, drawn independently.
    for part in found["per_rank"]:
        assert part["seen_share"] == pytest.approx(1 - 0.75**2, abs=0.03)
        assert part["verdict"] == "excellent"
    for part in found["per_node"]:
        assert part["seen_share"] == pytest.approx(0.75, abs=0.03)
    text = run(*WITHOUT_DATA, "--ranks", "4").stdout
    assert "share of the data seen" in text


def test_a_log_of_any_loader_is_measured(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    epochs = np.concatenate([random.permutation(SAMPLES) for _ in range(2)])
    np.save(tmp_path / "log.npy", epochs)
    found = run_json(*WITHOUT_DATA, "--ids", tmp_path / "log.npy", "--epochs", "2")
    assert (found["verdict"], found["epochs"]) == ("excellent", 2)
    epochs[5] = epochs[6]
    (tmp_path / "log.txt").write_text("\n".join(map(str, epochs)))
    found = run_json(*WITHOUT_DATA, "--ids", tmp_path / "log.txt", "--epochs", "2")
    assert (found["verdict"], found["missing"], found["duplicated"]) == ("broken", 1, 1)


def test_a_dataset_s_labels_are_expected_and_its_blocks_measured(source_pack: Path) -> None:
    found = run_json("order", source_pack, "--batch", "8")
    assert found["samples"] == 60
    assert found["expected"]["correlation"] > 0.3  # class by class on storage
    assert found["expected"]["of_labels"] == 1
    assert "of labels (their correlation in blocks is" in run("order", source_pack).stdout


def test_without_json_it_prints_a_table_and_a_verdict() -> None:
    text = run(*WITHOUT_DATA).stdout
    for part in (
        "vif_32",
        "prefix_mixed",
        "0 missing",
        "equivalent buffer: ",
        "verdict: excellent",
    ):
        assert part in text


def test_the_chart_is_written(tmp_path: Path) -> None:
    target = tmp_path / "chart.png"
    run(*WITHOUT_DATA, "--order", "epoch", "--plot", target)
    assert target.read_bytes().startswith(b"\x89PNG")
    text = run(*WITHOUT_DATA, "--plot", tmp_path / "chart.jpg", code=2).stderr
    assert "suffix .png" in text
    assert "writing the chart" in run(*WITHOUT_DATA, "--plot", "/nowhere/a.png", code=3).stderr


def test_without_matplotlib_the_chart_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importing = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return importing(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'headrace\[plot\]'"):
        quality_plot.draw(tmp_path / "a.png", make_source(None, 10, 2), np.arange(10), {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either a DATASET, or --samples"),
        (("--samples", "0"), "--samples: got 0"),
        (("--samples", "9", "--block-samples", "0"), "--block-samples: got 0"),
        (("--samples", "9", "--ids", "/nowhere.npy"), "no such file"),
        (("--samples", "9", "--ids", __file__), "something else than numbers"),
        (("--samples", "9", "--order", "best"), "must be one of 'exact'"),
        (("--samples", "9", "--memory", "10%"), "sizes a pool, which order exact does not have"),
        (("--samples", "99", "--order", "epoch", "--memory", "much"), "not a number of bytes"),
        (("--samples", "9", "--ranks", "2", "--batch", "3"), "must be a multiple of 2"),
        (("--samples", "9", "--ranks", "0"), "--ranks: got 0"),
        (("--samples", "9", "--ranks", "2", "--ranks-per-node", "3"), "--ranks-per-node: got 3"),
        (("--samples", "9", "--set", "pools"), "must be NAME=VALUE"),
        (("--samples", "9", "--pools", "1"), "is given as --set pools=1"),
        (("--samples", "9", "--set", "pools=1", "--set", "pools=2"), "given twice"),
        (("--samples", "9", "--epochs", "0"), "epochs: got 0"),
        (("--samples", "9", "--seed", "-1"), "seed: got -1"),
        (("--samples", "9", "--ids", "x.npy", "--order", "epoch"), "--order with --ids"),
        (("--samples", "9", "--ids", "x.npy", "--no-shuffle"), "--no-shuffle with --ids"),
        (("--samples", "9", "--ids", "x.npy", "--drop-last"), "--drop-last with --ids"),
        (("--samples", "9", "--ids", "x.npy", "--seed", "3"), "--seed with --ids"),
        (("--samples", "9", "--ids", "x.npy", "--ranks", "2"), "--ranks with --ids"),
        (("--samples", "9", "--ids", "x.npy", "--set", "pools=1"), "--set with --ids"),
        (
            ("--samples", "9", "--ids", "x.npy", "--ranks-per-node", "2"),
            "--ranks-per-node with --ids",
        ),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments: tuple[str, ...], message: str) -> None:
    text = run("order", *arguments, code=2).stderr
    assert message in text
    assert text.count("\n") == 1


def test_a_share_of_a_small_dataset_that_is_too_little_takes_the_default_and_says_so() -> None:
    done = run("order", "--samples", 100, "--order", "epoch", "--memory", "10%")
    assert "verdict: " in done.stdout
    assert re.fullmatch(
        r"headrace: --memory 10% of this dataset is 10 samples, too little for order epoch; "
        r"it keeps \d+ samples instead, its default\n",
        done.stderr,
    )
