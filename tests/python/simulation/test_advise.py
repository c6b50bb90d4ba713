"""`simulation.advise` on machines whose best setup follows by arithmetic, and its command."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advised import BATCH, BYTES, MB, SAMPLES, SIZE, machine, of, work
from commands import run, run_json

import headrace as hr
from headrace import _core, errors, simulation
from headrace.cli._parts.advised import loader_text
from headrace.cli._parts.demand import parse_demand
from headrace.simulation import Advice, Setup, TierChoice
from headrace.simulation.advise import REAL_OVER_SIMULATED, TIER_SETS_MAX

PAGE = Path(__file__).parents[3] / "docs" / "simulate.md"


def test_blocks_win_by_their_requests_where_small_reads_are_slow() -> None:
    advice = simulation.advise(machine(), work())
    exact, blocks = of(advice, "exact"), of(advice, "epoch", block_bytes=1_000_000)
    assert exact.seconds == pytest.approx(BYTES / (100 * MB), rel=0.03)
    assert exact.bill.requests == pytest.approx(SAMPLES, rel=0.02)  # Few are neighbours.
    # Two threads decode 200 MB/s, and copy at 40 GB/s.
    assert blocks.seconds == pytest.approx(BYTES / (200 * MB), rel=0.1)
    assert blocks.bill.requests == pytest.approx(SAMPLES / 10, rel=0.01)
    assert advice.chosen.setup.order == "epoch"
    assert advice.chosen.setup.block_bytes == 1_000_000
    assert advice.chosen.block_samples == 10
    assert advice.bottleneck == "decode"
    assert advice.why.startswith("it is the fastest; exact takes 8")
    assert advice.candidates[0].seconds <= min(one.seconds for one in advice.candidates)


def test_exact_is_chosen_where_training_decides() -> None:
    advice = simulation.advise(machine(), work(sample_rate=500.0))
    assert advice.chosen.setup.order == "exact"
    assert advice.chosen.seconds == pytest.approx(SAMPLES / 500, rel=0.02)
    assert advice.bottleneck == "training"
    assert advice.gains["training"] > 0.4
    assert max(advice.gains[name] for name in ("storage", "decode")) < 0.05
    assert "waits" not in advice.why
    # 50 MB/s are enough for it: half of the threads, too.
    assert advice.chosen.setup.threads == 1
    assert advice.chosen.setup.prefetch == 8
    assert loader_text(advice) == (
        "hr.Loader('none', 20, order=\"exact\", memory=1073741824, threads=1, "
        "engine=hr.EngineOptions(prefetch=8))"
    )


def test_all_threads_are_advised_where_decoding_decides() -> None:
    advice = simulation.advise(machine(decode=40 * MB, cpus=4), work())
    assert advice.chosen.setup.order == "exact"
    assert advice.chosen.setup.threads == 4
    assert advice.bottleneck == "decode"
    assert advice.chosen.seconds == pytest.approx(BYTES / (40 * MB), rel=0.05)
    (half,) = (one for one in advice.candidates if one.setup.threads == 2)
    assert half.seconds == pytest.approx(2 * advice.chosen.seconds, rel=0.05)
    waits = simulation.advise(machine(decode=40 * MB), work(sample_rate=1000.0))
    assert "training waits: no candidate is fast enough" in waits.why


@pytest.mark.parametrize(("decode", "order"), [(105 * MB, "exact"), (125 * MB, "epoch")])
def test_within_the_range_of_error_the_stronger_shuffle_is_chosen(
    decode: float, order: str
) -> None:
    """`exact` takes 8 s for storage, `epoch` what decoding takes: 7.6 or 6.4 s."""
    advice = simulation.advise(machine(decode=decode), work())
    assert advice.candidates[0].setup.order == "epoch"
    exact, fastest = of(advice, "exact"), advice.candidates[0]
    assert (exact.range[0] <= fastest.range[1]) == (order == "exact")
    assert advice.chosen.setup.order == order
    if order == "exact":
        assert "its range meets that of the fastest, epoch in blocks of 976.6 KiB" in advice.why
        assert "and it shuffles better" in advice.why


def test_within_the_range_of_error_less_memory_is_chosen() -> None:
    tiers = [TierChoice(name="ram", capacity=share * BYTES // 100) for share in (2, 40, 41)]
    tiers.append(TierChoice(name="/nvme/cache", capacity=BYTES))
    slow = machine(decode=1000 * MB)
    only = replace(slow, storage=replace(slow.storage, rates=slow.storage.rates[:1]))
    advice = simulation.advise(only, work(epochs=5), tiers)
    # A tier on the disk has all samples after an epoch, and takes no memory.
    assert advice.chosen.setup.tiers == (tiers[3],)
    assert advice.chosen.setup.ram_bytes == 0
    assert "takes less memory" in advice.why or "the fastest" in advice.why
    advice = simulation.advise(only, work(epochs=5), tiers[:3])
    assert advice.chosen.setup.tiers == (tiers[1],)  # 41 % is faster, by less than the error
    assert "takes less memory" in advice.why
    assert advice.candidates[0].setup.tiers == (tiers[2],)
    assert advice.chosen.memory == tiers[1].capacity + 9 * BATCH * SIZE


def test_a_tier_saves_reads_and_is_on_the_bill() -> None:
    tier = TierChoice(name="ram", capacity=BYTES // 2)
    advice = simulation.advise(machine(), work(epochs=4), [tier])
    without, kept = of(advice, "exact"), of(advice, "exact", tiers=(tier,))
    assert without.bill.storage_bytes == BYTES
    assert kept.bill.storage_bytes == pytest.approx(BYTES * (1 + 3 / 2) / 4, rel=0.02)
    assert kept.seconds < 0.7 * without.seconds
    assert kept.bill.link_bytes == 0
    linked = machine(peer_bytes_per_second=5e9)
    two = simulation.advise(linked, work(epochs=4, nodes=2), [tier])
    # After the first epoch both together have all: a node has half of what it uses, or more.
    assert 0.25 < of(two, "exact", tiers=(tier,)).bill.link_bytes / BYTES < 0.375
    files = replace(linked.storage, reads="files", rates=linked.storage.rates[:1])
    job = work(epochs=4, nodes=2)
    slow = replace(linked, storage=files, peer_bytes_per_second=30 * MB)
    advice = simulation.advise(slow, job, [tier])
    assert advice.chosen.setup.tiers == (tier,)
    assert advice.gains["link"] > 0.1


def model_of_requests(samples: int, seed: int, epochs: int) -> int:
    """Of `exact` without tiers: neighbours of a step are one read, up to 1 MiB."""
    stream = _core.OrderStream(
        "exact",
        {},
        index=(samples, 1),
        batch_size=BATCH,
        world_size=1,
        ranks=1,
        seed=seed,
        drop_last=True,
        epochs=epochs,
    )
    requests = 0
    while len(ids := stream.ids(1)):
        run_bytes, before = 0, -2
        for sample in sorted(int(one) for one in ids.ravel()):
            if sample == before + 1 and run_bytes + SIZE <= 2**20:
                run_bytes += SIZE
            else:
                requests, run_bytes = requests + 1, SIZE
            before = sample
    return requests


@pytest.mark.parametrize("full", [False, True])
def test_the_bill_counts_the_requests_of_the_plan(full: bool) -> None:
    few = np.full(1000, float(SIZE))
    advice = simulation.advise(machine(), work(sizes=few, epochs=2, seed=3), full=full)
    exact = of(advice, "exact")
    assert exact.outcome.storage_reads == model_of_requests(1000, 3, 2)
    assert exact.bill.requests * 2 == exact.outcome.storage_reads
    assert exact.bill.storage_bytes == pytest.approx(1000 * SIZE)
    assert of(advice, "epoch", block_bytes=1_000_000).bill.requests == pytest.approx(100, rel=0.03)


def test_both_modes_ask_for_nearly_the_same_with_tiers_of_two_nodes() -> None:
    tier = TierChoice(name="ram", capacity=1000 * SIZE // 4)
    job = work(sizes=np.full(1000, float(SIZE)), epochs=3, nodes=2)
    bills = [
        of(
            simulation.advise(machine(peer_bytes_per_second=5e9), job, [tier], full=full),
            "exact",
            tiers=(tier,),
        ).bill
        for full in (False, True)
    ]
    for name in ("requests", "storage_bytes"):
        fast, engines = (getattr(bill, name) for bill in bills)
        assert fast == pytest.approx(engines, rel=0.05), name


def test_blocks_of_alike_labels_are_chosen_only_where_nothing_else_is_as_fast() -> None:
    def mixing(alike: set[int]) -> Callable[[str, int | None], float | None]:
        return lambda order, block: (2.25 if block in alike else 1.0) if block else None

    quick = machine(decode=390 * MB, cpus=2)
    assert simulation.advise(quick, work()).chosen.block_samples == 10
    advice = simulation.advise(quick, work(), (), mixing({10, 40}))
    assert not advice.chosen.mixes
    assert (
        "labels inside its blocks are alike: their mix varies 2.25 times as much from batch to "
        "batch as a perfect shuffle's: shuffle the dataset once: `headrace pack`"
    ) in advice.why
    near = simulation.advise(quick, work(sample_rate=900.0), (), mixing({10, 40}))
    assert near.chosen.setup.order == "exact"
    larger = simulation.advise(machine(), work(epochs=3), (), mixing({10}))
    assert (larger.chosen.block_samples, larger.chosen.mixes) == (40, True)


def test_the_dataset_s_own_blocks_need_no_parameter() -> None:
    advice = simulation.advise(machine(), work(block_bytes=1_100_000.4))
    sizes = {one.setup.block_bytes for one in advice.candidates}
    assert sizes == {None, 1_100_000, 4_000_000}  # 1 MB is nearly the same
    assert (advice.chosen.setup.block_bytes, advice.chosen.block_samples) == (1_100_000, None)
    assert 'order="epoch"' in loader_text(advice)


def test_files_of_one_sample_are_not_read_in_blocks() -> None:
    made = machine(decode=1000 * MB)
    files = replace(made.storage, reads="files", rates=made.storage.rates[:1])
    advice = simulation.advise(replace(made, storage=files), work())
    assert {one.setup.order for one in advice.candidates} == {"exact"}
    assert "each sample is a file of its own: `headrace pack`" in advice.why
    assert advice.bottleneck == "storage"


def test_levelled_batches_are_chosen_where_bytes_decide_how_long_nodes_train() -> None:
    sizes = np.random.default_rng(0).lognormal(np.log(SIZE), 1.0, SAMPLES)
    job = work(sizes=sizes, nodes=4, batch_size=5, compute_rate=10 * MB)
    advice = simulation.advise(machine(decode=2000 * MB), job)
    assert advice.chosen.setup.order == "batch"
    assert advice.bottleneck == "training"


def test_what_cannot_be_advised_is_refused(tmp_path: Path) -> None:
    other = machine()
    other = replace(other, dataset=replace(other.dataset, path="/data/b", fingerprint="b"))
    refusals: list[tuple[Callable[[], object], str]] = [
        (
            lambda: simulation.advise(other, work()),
            "advising for none: the profile is of another dataset, /data/b (1 sample, fingerprint "
            "b); measure this one: `headrace profile none --output machine.toml`",
        ),
        (
            lambda: simulation.advise(machine(), work(memory=3_900_000)),
            "advising for none: no candidate fits into 3.7 MiB of memory: the batch in use and the "
            "next one take 3.8 MiB; give more memory, or a smaller batch_size",
        ),
        (
            lambda: simulation.advise(
                machine(), work(nodes=2), [TierChoice(name="ram", capacity=10**6)]
            ),
            "tiers of 2 nodes: the profile has no rate between nodes; measure it on all of them: "
            "`headrace profile none --tier /nvme/cache --links --output machine.toml`, or give "
            "[peers] to its file",
        ),
        (
            lambda: simulation.advise(
                machine(), work(), [TierChoice(name=str(tmp_path), capacity=10**6)]
            ),
            f"profile: it has no folder on the disk of tier {tmp_path}; measure it again: "
            f"`headrace profile none --tier /nvme/cache --tier {tmp_path} --output machine.toml`",
        ),
        (
            lambda: simulation.advise(
                machine(),
                work(),
                [TierChoice(name="ram", capacity=at) for at in range(1, TIER_SETS_MAX + 1)],
            ),
            "tiers: got 65 combinations of capacities, must be at most 64; name fewer",
        ),
        (
            lambda: simulation.advise(
                simulation.load_scenario("thesis-s1"),
                work(),
                [TierChoice(name="tape", capacity=10**6)],
            ),
            "tier tape: the scenario has no rate of it; its tiers are: RAM, SSD",
        ),
    ]
    for call, message in refusals:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            call()
        assert message in str(caught.value)


def test_tiers_and_pools_that_do_not_fit_are_listed() -> None:
    advice = simulation.advise(
        machine(), work(memory=5_000_000), [TierChoice(name="ram", capacity=4_000_000)]
    )
    assert advice.refused[0][0] == "any order + ram 3.8 MiB"
    assert "4.8 MiB of memory; the batch in use and the next one take 3.8 MiB" in str(
        advice.refused[0]
    )
    assert {one.setup.tiers for one in advice.candidates} == {()}
    tiny = simulation.advise(machine(), work(memory=4_100_000))
    assert any("resident, and staging has" in why for _, why in tiny.refused)
    assert tiny.chosen.setup.prefetch == 1


def test_a_profile_as_a_scenario_has_its_rates() -> None:
    job = work(nodes=4, ranks=2, sample_rate=70.0, seed=5)
    exact = simulation.machine_scenario(machine(), job, Setup(order="exact", threads=2))
    assert exact.storage.readers == (1, 2, 4)
    assert exact.storage.reads_per_second == pytest.approx(1000)  # 100 MB/s of 100 kB
    assert exact.preprocess_rate == pytest.approx(100 * MB)
    assert (exact.sample_rate, exact.compute_rate) == (70.0, None)
    assert (exact.ranks, exact.seed, exact.staging.capacity) == (2, 5, 2**30)
    blocks = Setup(order="epoch", block_bytes=4_000_000, threads=2)
    shared = simulation.machine_scenario(machine(), job, blocks)
    assert shared.storage.rates == pytest.approx((500 * MB,) * 3)
    assert shared.preprocess_rate == pytest.approx(1 / (1 / (100 * MB) + 1 / (20_000 * MB)))
    own_disk = machine(storage=replace(machine().storage, cold_share=1.0))
    apart = simulation.machine_scenario(own_disk, job, blocks)
    assert apart.storage.rates == pytest.approx((500 * MB, 1000 * MB, 2000 * MB))
    tier = TierChoice(name="/nvme/cache", capacity=1000)
    linked = machine(peer_bytes_per_second=3e9)
    cached = simulation.machine_scenario(
        linked, job, Setup(order="exact", threads=1, tiers=(tier,))
    )
    assert cached.network_rate == pytest.approx(3e9)
    assert cached.tiers[0].rate == pytest.approx(2000 * MB)


def test_a_scenario_stands_in_for_a_profile() -> None:
    described = simulation.load_scenario("thesis-s1")
    tier = TierChoice(name="ram", capacity=BYTES)
    job = work(memory=2 * BYTES, epochs=3, compute_rate=described.compute_rate)
    advice = simulation.advise(described, job, [tier])
    assert advice.scenario.storage == described.storage
    assert of(advice, "exact", tiers=(tier,)).seconds < of(advice, "exact").seconds
    assert advice.chosen.seconds == pytest.approx(BYTES / (100 * MB), rel=0.1)


def profile_of(pack: Path, folder: Path) -> Path:
    made = machine()
    dataset = hr.open(pack)
    facts = replace(made.dataset, path=str(pack), fingerprint=dataset.fingerprint)
    path = folder / "machine.toml"
    replace(made, dataset=facts).save(path)
    return path


def test_the_command_prints_json_and_a_page(source_pack: Path, tmp_path: Path) -> None:
    profile, page = profile_of(source_pack, tmp_path), tmp_path / "page.html"
    options = ("--profile", profile, "--batch-size", 4, "--demand", 100, "--tier", "ram=100KB")
    found = run_json("advise", source_pack, *options, "--html", page)
    assert found["chosen"]["order"] == "exact"
    assert found["bottleneck"] == "training"
    assert found["job"]["sample_rate"] == 100
    assert found["chosen"] in found["candidates"]
    assert [one["seconds"] for one in found["candidates"]] == sorted(
        one["seconds"] for one in found["candidates"]
    )
    assert found["loader"].startswith(f"hr.Loader('{source_pack}', 4, order=\"exact\"")
    with eval(found["loader"], {"hr": hr}) as loader:
        assert len(loader) == 15
    text = page.read_text()
    for caption in ("Seconds of an epoch, with the range", "The bill", "twice as fast"):
        assert caption in text
    assert text.count("data:image/svg+xml") == 3
    assert "chosen" in text
    shown = run("advise", source_pack, *options).stdout
    assert "advice: hr.Loader(" in shown
    assert "the next bottleneck: training; twice as fast it saves" in shown
    assert shown.count("chosen") == 1
    rates = run_json("advise", source_pack, *options[:-2], "--full", "--demand", "1MB/s")
    assert rates["job"]["compute_rate"] == 1_000_000
    stored = sum(path.stat().st_size for path in source_pack.rglob("*") if path.is_file())
    kept = {tier["capacity"] for one in rates["candidates"] for tier in one["tiers"]}
    assert all(0.8 * stored < capacity < 1.05 * stored for capacity in kept)
    assert len(kept) == 1  # for all of the data
    described = run_json("advise", source_pack, "--scenario", "thesis-s1", "--nodes", 1)
    assert described["job"]["batch_size"] == 25


def test_the_command_refuses(source_pack: Path, numbered: Path, tmp_path: Path) -> None:
    profile = profile_of(source_pack, tmp_path)
    for arguments, message in (
        ((source_pack,), "give either --profile, which headrace profile measures, or --scenario"),
        ((numbered, "--profile", profile, "--batch-size", 4), "the profile is of another dataset"),
        ((source_pack, "--profile", profile), "1 rank with a batch_size of 256 takes more than"),
        (
            (source_pack, "--profile", profile, "--batch-size", 4, "--memory", "9KB"),
            "no candidate fits into 8.8 KiB of memory",
        ),
        (
            (source_pack, "--profile", profile, "--batch-size", 4, "--tier", "32GB"),
            '--tier: got "32GB", must be NAME=CAPACITY, as ram=32GB or /nvme/cache=1TB',
        ),
        ((source_pack, "--profile", profile, "--batch-size", 0), "--batch-size"),
        ((source_pack, "--profile", profile, "--demand", "much"), '--demand: got "much"'),
        ((source_pack, "--profile", profile, "--html", tmp_path / "a.png"), "suffix .html"),
    ):
        assert message in " ".join(run("advise", *arguments, code=2).stderr.split())


def test_the_example_of_the_page_runs(
    source_pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGE.read_text().partition("## Advice for a machine")[2]
    profile_of(source_pack, tmp_path)
    monkeypatch.chdir(tmp_path)
    code = section.partition("```python\n")[2].partition("```")[0]
    code = code.replace("/data/images", str(source_pack)).replace("batch_size=256", "batch_size=4")
    names: dict[str, Any] = {}
    exec(code, names)
    assert isinstance(names["advice"], Advice)


def test_the_range_is_that_of_the_real_runs() -> None:
    """Of all columns of errors: those of the estimate, too, once they are measured."""
    rows = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in PAGE.read_text()
        .partition("real_runs.py -->")[2]
        .partition("<!--")[0]
        .split("\n")
        if line.startswith("|")
    ]
    columns = [at for at, name in enumerate(rows[0]) if name in ("error", "error, fast")]
    assert columns
    assert len(rows) > 10
    for row in rows[2:]:
        for at in columns:
            least, most = map(float, re.findall(r"([+-][\d.]+)% to ([+-][\d.]+)%", row[at])[0])
            assert REAL_OVER_SIMULATED[0] <= 1 + least / 100, row
            assert 1 + most / 100 <= REAL_OVER_SIMULATED[1], row


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1200", 1200), (" 12.5 samples/s", 12.5), ("500MB/s", 5000), ("1 MiB/s", 10.48576)],
)
def test_a_demand_is_samples_or_bytes(text: str, rate: float) -> None:
    assert parse_demand(text).samples_of(100_000) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["fast", "500MB", "0", "-5", "0MB/s", "5 lumps/s", "500Mb/s"])
def test_a_demand_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="--demand"):
        parse_demand(text)
