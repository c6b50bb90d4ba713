"""Wrong types and values from Python: one error that names function, argument, value and range."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advised import machine, work
from drawn_scenarios import drawn

import headrace as hr
from headrace import errors, simulation
from headrace.simulation import (
    IndexSizes,
    Outcome,
    Scenario,
    Setup,
    Sizes,
    Staging,
    StorageRates,
    TierChoice,
    TierRates,
    Workload,
)

WRONG: tuple[Any, ...] = ("many", None, [4], {}, True, 4.5j, math.nan, math.inf, -1, np.ones(1))
"""No count, no size and no rate, whatever its range."""
WHOLE = "must be a whole number in ["
BYTES = "as 4096 or '64 MB', of at most"
RATE = "must be a rate of bytes above 0"


def by_bytes(**changes: Any) -> Scenario:
    """A scenario whose nodes compute by bytes."""
    return replace(drawn(0), compute_rate=5.0, sample_rate=None, **changes)


def objects() -> list[tuple[Any, dict[str, str]]]:
    """Of each class one that is right; and what its numbers must be, by field."""
    scenario = by_bytes(tiers=(TierRates("RAM", 10, 1, 5.0),))
    return [
        (Sizes(10, 5), {"samples": WHOLE, "mean": BYTES, "deviation": BYTES, "least": BYTES}),
        (Staging(10, 1, 5.0), {"capacity": BYTES, "threads": WHOLE, "rate": RATE}),
        (TierRates("RAM", 10, 1, 5.0), {"capacity": BYTES, "threads": WHOLE, "rate": RATE}),
        (
            StorageRates((1, 2), (5.0, 6.0), 7.0, "reads", 8.0, 9, 1.0),
            {
                "link_rate": RATE,
                "reads_per_second": "must be a number above 0",
                "reads_in_flight": WHOLE,
                "latency": "must be a number in [0, 86400]",
            },
        ),
        (
            scenario,
            {
                **dict.fromkeys(("nodes", "ranks", "batch_size", "epochs", "seed"), WHOLE),
                **dict.fromkeys(("compute_rate", "preprocess_rate", "network_rate"), RATE),
                "allreduce": "must be a number in [0, 86400]",
                "allreduce_noise": "must be a number of at least 0",
                "storage": "must be a StorageRates",
                "staging": "must be a Staging",
                "sizes": "must be a Sizes or IndexSizes",
                "tiers": "must be a list of TierRates, at most 8",
            },
        ),
        (
            work(block_bytes=5, sample_rate=5),
            {
                **dict.fromkeys(("nodes", "ranks", "batch_size", "epochs", "seed"), WHOLE),
                **dict.fromkeys(("memory", "block_bytes"), BYTES),
                "sample_rate": "must be a number above 0",
            },
        ),
        (work(compute_rate=5.0), {"compute_rate": RATE}),
        (TierChoice(name="ram", capacity=5), {"capacity": BYTES}),
        (Setup(order="exact"), {"threads": WHOLE, "prefetch": WHOLE}),
        (Setup(order="epoch", block_bytes=9), {"block_bytes": WHOLE}),
    ]


@pytest.mark.parametrize("position", range(len(objects())))
def test_a_wrong_number_of_an_object_is_named_with_its_range(position: int) -> None:
    right, fields = objects()[position]
    optional = {"link_rate", "reads_per_second", "reads_in_flight", "sample_rate", "block_bytes"}
    for field, must in fields.items():
        for wrong in WRONG:
            if wrong is None and field in optional | {"compute_rate"}:
                continue
            with pytest.raises(errors.InvalidArgumentError) as caught:
                replace(right, **{field: wrong})
            said = str(caught.value)
            assert said.startswith(f"{type(right).__name__}.{field}"), said
            assert ": got " in said
            of_tier = field == "tiers" and wrong == [4]
            assert ("tiers[0]: got 4, must be a TierRates" if of_tier else must) in said


def case(call: Callable[[], object], error: str) -> Any:
    return pytest.param(call, error, id=error[:60])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        case(
            lambda: simulation.advise("machine.toml", work()),  # type: ignore[arg-type]
            "advise: machine: got 'machine.toml', must be a MachineProfile, as "
            "headrace.profile.load(path) gives, or a Scenario, as load_scenario(path) gives",
        ),
        case(
            lambda: simulation.advise(machine(), None),  # type: ignore[arg-type]
            "advise: work: got None, must be a Workload, as Workload.of(dataset, ...) gives",
        ),
        case(
            lambda: simulation.advise(machine(), work(), "ram=1GB"),  # type: ignore[arg-type]
            "advise: tiers: got 'ram=1GB', must be an iterable of TierChoice",
        ),
        case(
            lambda: simulation.advise(machine(), work(), ["ram"]),  # type: ignore[list-item]
            "advise: tiers[0]: got 'ram', must be a TierChoice",
        ),
        case(
            lambda: simulation.advise(machine(), work(), (), "no"),  # type: ignore[arg-type]
            "advise: label_inflation: got 'no', must be callable",
        ),
        case(
            lambda: simulation.advise(machine(), work(), (), lambda *_: math.nan),
            "advise: label_inflation: returned nan for order 'exact', must be a finite number",
        ),
        case(
            lambda: simulation.advise(machine(), work(), full=1),  # type: ignore[arg-type]
            "advise: full: got 1, must be True or False",
        ),
        case(
            lambda: simulation.simulate("nopfs-8b"),  # type: ignore[arg-type]
            "simulate: scenario: got 'nopfs-8b', must be a Scenario, as load_scenario('nopfs-8b') "
            "gives",
        ),
        case(
            lambda: simulation.simulate(drawn(0), [4]),  # type: ignore[list-item]
            "simulate: policy: got 4, must be one of 'perfect'",
        ),
        case(
            lambda: simulation.simulate(drawn(0), orders="exact"),
            "simulate: orders: got 'exact', must be an iterable of orders' names",
        ),
        case(
            lambda: simulation.simulate(drawn(0), progress=4),  # type: ignore[arg-type]
            "simulate: progress: got 4, must be callable",
        ),
        case(
            lambda: simulation.simulate(drawn(0), fast="no"),  # type: ignore[arg-type]
            "simulate: fast: got 'no', must be True or False",
        ),
        case(
            lambda: simulation.simulate(drawn(0), policy=["nopfs"]),  # type: ignore[call-arg]
            "policy=['nopfs']: unexpected keyword 'policy'; there are scenario, names, progress",
        ),
        case(
            lambda: simulation.sweep(None, {}),  # type: ignore[arg-type]
            "sweep: scenario: got None, must be a Scenario, as load_scenario(path) gives",
        ),
        case(
            lambda: simulation.sweep(drawn(0), ["job.nodes"]),  # type: ignore[arg-type]
            "sweep: keys: got ['job.nodes'], must be a dict, as {'job.nodes': [4, 8]}",
        ),
        case(
            lambda: simulation.sweep(drawn(0), {"job.nodes": [None]}),  # type: ignore[list-item]
            "sweep job.nodes=None: job.nodes: got None, must be a whole number in [1, 65536]",
        ),
        case(
            lambda: simulation.parse_sweep(4),  # type: ignore[arg-type]
            "parse_sweep: text: got 4, must be a text, as 'job.nodes=4,8'",
        ),
        case(lambda: simulation.load_scenario(4), "scenario: got 4, must be a path"),  # type: ignore[arg-type]
        case(
            lambda: simulation.machine_scenario(drawn(0), work(), Setup(order="exact")),  # type: ignore[arg-type]
            "machine_scenario: profile: got Scenario(",
        ),
        case(
            lambda: simulation.machine_scenario(machine(), work(), "exact"),  # type: ignore[arg-type]
            "machine_scenario: setup: got 'exact', must be a Setup",
        ),
        case(
            lambda: simulation.machine_scenario(
                machine(),
                work(),
                Setup(order="exact", tiers=[ram(2**30)]),  # type: ignore[arg-type]
            ),
            "machine_scenario: setup.tiers: take 1.0 GiB of memory, must be less than work.memory, "
            "1.0 GiB",
        ),
        case(
            lambda: Workload.of("/data", batch_size=4, memory=1),  # type: ignore[arg-type]
            "Workload.of: dataset: got '/data', must be a Dataset, as headrace.open(path) gives",
        ),
        case(lambda: work(sizes=[4]), "Workload.sizes: got [4], must be a ndarray"),
        case(
            lambda: work(sizes=np.array([1.0, np.nan])),
            "Workload.sizes: got array([ 1., nan]), must be an array of one dimension with the",
        ),
        case(lambda: work(sizes=np.zeros(4)), "Workload.sizes: got array([0., 0., 0., 0.]), must"),
        case(lambda: work(dataset=None), "Workload.dataset: got None, must be a text"),
        case(lambda: work(files="no"), "Workload.files: got 'no', must be true or false"),
        case(lambda: work(batchsize=4), "unexpected keyword 'batchsize'; did you mean"),
        case(
            lambda: work(sample_rate=4, compute_rate=5),
            "Workload: got sample_rate 4 and compute_rate 5, must be one of them at most",
        ),
        case(lambda: work(memory="1.5Gb/s"), "Workload.memory: got '1.5Gb/s', must be a size"),
        case(
            lambda: Setup(order="best"),
            "Setup.order: got 'best', must be one of 'exact', 'batch', 'epoch'",
        ),
        case(lambda: Setup(order="exact", tiers=ram(1)), "Setup.tiers: got TierChoice(name='ram'"),  # type: ignore[arg-type]
        case(
            lambda: Setup(order="exact", tiers=(ram(1), ram(2, "RAM"))),
            "Setup.tiers: got 'ram' 2 times, must be tiers of different names",
        ),
        case(
            lambda: replace(drawn(0), tiers=[TierRates(name, 1, 1, 5.0) for name in ("a", "A")]),
            "Scenario: tiers[1].name: got 'A', which another tier has; give each tier a name",
        ),
        case(
            lambda: replace(by_bytes(), sample_rate=4.0),
            "Scenario.compute_rate: got 5.0 with sample_rate 4.0, must be one of them, and None",
        ),
        case(
            lambda: replace(drawn(0), nodes=4, batch_size=30, sizes=Sizes(100, 5)),
            "Scenario: job: 4 ranks with a batch_size of 30 take more than the 100 samples",
        ),
        case(lambda: replace(drawn(0), schedule="best"), "Scenario.schedule: got 'best', must be"),
        case(lambda: replace(drawn(0), printed={"nopfs": "x"}), "Scenario.printed.nopfs: got 'x'"),
        case(lambda: replace(drawn(0), title=""), "Scenario.title: got '', must be a text"),
        case(lambda: IndexSizes(None), "IndexSizes.index: got None, must be a text"),  # type: ignore[arg-type]
        case(
            lambda: StorageRates((1, 1), (5.0, 5.0)),
            "StorageRates.readers[1]: got 1, must be a whole number above 1",
        ),
        case(
            lambda: StorageRates((1, 2), (5.0,)),
            "StorageRates.rates: got [5.0], must be a list of 2 rates",
        ),
        case(
            lambda: StorageRates((1,), ("1.5Gb",)),  # type: ignore[arg-type]
            'StorageRates.rates[0]: "1.5Gb" may be bits a second; write bytes: "0.1875GB/s"',
        ),
        case(lambda: Sizes(4, 4).draw(-1), "Sizes.draw: seed: got -1, must be in [0, "),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], error: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        call()
    assert error in str(caught.value)


def ram(capacity: int, name: str = "ram") -> TierChoice:
    return TierChoice(name=name, capacity=capacity)


def test_the_samples_of_a_dataset_are_checked_when_it_is_read(numbered: Path) -> None:
    scenario = replace(drawn(0), sizes=IndexSizes(str(numbered)), nodes=9, batch_size=9_999)
    with pytest.raises(errors.InvalidArgumentError, match="simulate: scenario: job: 9 ranks with"):
        simulation.simulate(scenario, ["naive"], orders=())


def test_numpys_numbers_and_texts_are_those_of_python() -> None:
    plain = by_bytes(sizes=Sizes(400, 20), nodes=4, batch_size=5)
    of_numpy = replace(
        plain,
        **{name: np.int32(getattr(plain, name)) for name in ("nodes", "batch_size", "epochs")},
        compute_rate=np.float32(5.5),
        network_rate="64 MB/s",
        staging=Staging(np.int64(300), np.uint8(2), np.float64(9)),  # type: ignore[arg-type]
    )
    assert [type(value) for value in (of_numpy.nodes, of_numpy.staging.threads)] == [int, int]
    assert type(of_numpy.compute_rate) is float
    assert of_numpy.network_rate == 64e6
    nodes = list(np.array([2, 4], np.int16))
    swept = list(simulation.sweep(of_numpy, {"job.nodes": nodes}, ["staging"]))
    for point, count in zip(swept, (2, 4), strict=True):
        alone = replace(of_numpy, nodes=count)
        (outcome,) = simulation.simulate(alone, ["staging"], orders=()).outcomes
        (same,) = point.simulation.outcomes
        assert isinstance(outcome, Outcome)
        assert isinstance(same, Outcome)
        assert outcome.seconds == same.seconds


def test_a_job_takes_sizes_as_a_loader_does(numbered: Path) -> None:
    dataset = hr.open(numbered)
    job = Workload.of(dataset, batch_size=np.int64(2), memory="1GB", compute_rate="500MB/s")
    assert (job.batch_size, job.memory, job.compute_rate) == (2, 10**9, 500e6)
    assert TierChoice(name="ram", capacity="32GB").capacity == 32 * 10**9  # type: ignore[arg-type]


def test_memory_is_one_tier_in_letters_of_either_case() -> None:
    tiers = [ram(10**6), ram(2 * 10**6, "RAM"), ram(10**6)]
    of_one = simulation.advise(machine(), work(epochs=2), tiers)
    sets = {tuple(tier.capacity for tier in one.setup.tiers) for one in of_one.candidates}
    assert sets == {(), (10**6,), (2 * 10**6,)}


def test_a_scenario_is_as_its_file_says() -> None:
    for name in simulation.shipped_scenarios():
        scenario = simulation.load_scenario(name)
        plain = simulation.scenario.to_plain(scenario)
        table = simulation.scenario.TomlTable("", "", plain)
        again: Scenario = simulation.scenario.to_scenario(table, name)
        assert again == replace(scenario, printed={})
