"""Runs the policies of a scenario."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import callback, choice, flag, items, shown
from headrace._signature import named_arguments
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.orders import Redox
from headrace.simulation.bounds import BOUNDED, bound_seconds
from headrace.simulation.own import OwnPolicy, preparing
from headrace.simulation.scenario import Scenario, check_step
from headrace.simulation.thread_models import THREAD_MODELS, ThreadModel

SOURCES = ("tier", "peer", "storage", "on_demand")
"""Where nodes get samples from: their own tier, another node's, storage ahead of their use, or
storage when they are needed."""


_REDOX_PAPER = "Redox, arXiv 2505.16280"
_REDOX_WINDOW = 5600
_REDOX_CHUNK = 64  # samples
_REDOX: dict[str, tuple[str, dict[str, int | str]]] = {
    Redox.name: ("Redox", {"refill": "max_fill", "prefetch": _REDOX_WINDOW}),
    f"{Redox.name}_random": (
        "Redox, random selection",
        {"refill": "random", "prefetch": _REDOX_WINDOW},
    ),
    f"{Redox.name}_alone": ("Redox, no prefetching", {"refill": "max_fill", "prefetch": 0}),
    f"{Redox.name}_none": ("Redox, no optimization", {"refill": "random", "prefetch": 0}),
}
"""Redox, and what it is compared with in its table 6: the title, and the order's parameters."""


@dataclass(frozen=True)
class Policy:
    """A published policy, an order of Headrace, which its own engine runs, or one of your own."""

    name: str
    title: str
    paper: str
    changes_order: bool
    """Its nodes do not train on what the job's order says."""
    own: type[OwnPolicy] | None = None
    """The class of one of your own."""
    order: str = ""
    """The order by which Headrace's engine runs it; empty: it is run by its own rules."""
    threads: ThreadModel | None = None
    """How it divides a node among its ranks; None: it does not."""


@dataclass(frozen=True)
class Fetched:
    """What nodes got from a source, all together."""

    samples: int
    bytes: float
    seconds: float
    """Of the threads that fetched."""


@dataclass(frozen=True)
class RankStages:
    """Seconds that a rank took for each stage, over all steps; figure 3 of Lobster's paper."""

    tier_seconds: float
    """Reads of its samples from tiers of the node, from when they were issued, summed over those in
    flight. What comes with a block is not counted;"""
    node_seconds: float
    """from other nodes;"""
    storage_seconds: float
    """and from storage."""
    preprocess_seconds: float
    """Summed over threads."""
    train_seconds: float
    """Computing;"""
    wait_seconds: float
    """waiting for its own batch,"""
    barrier_seconds: float
    """and for slower ranks."""

    @property
    def utilisation(self) -> float:
        """The share of the time that the rank trains."""
        seconds = self.train_seconds + self.wait_seconds + self.barrier_seconds
        return self.train_seconds / seconds if seconds else 0.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """A run of a policy. Times are simulated seconds."""

    policy: Policy
    seconds: float
    """Of all epochs, with what comes before the first."""
    setup_seconds: float
    """Before the first step."""
    compute_seconds: float
    """Mean of the nodes: computing,"""
    stall_seconds: float
    """waiting for samples,"""
    barrier_seconds: float
    """and for slower nodes."""
    allreduce_seconds: float
    """After the computing of steps, all nodes together."""
    fetched: dict[str, Fetched]
    """By source, see `SOURCES`."""
    filled_bytes: float
    """That tiers read from storage, before and during training; of Headrace's orders also gaps
    between neighbours that are read as one;"""
    copied_bytes: float
    """and from other nodes, of published policies."""
    samples_used: int
    """Of the dataset, by any node, at least once."""
    epoch_seconds: npt.NDArray[np.float64]
    """The first with what comes before it."""
    step_seconds: npt.NDArray[np.float64]
    least_seconds: float | None = None
    """Of the same plan without a stall; None: of a published policy."""
    first_read_seconds: float | None = None
    """In which storage at its best gives what is read with the first step: what the pools of
    `epoch` begin with; None: of a published policy."""
    stalls: dict[str, float] = field(default_factory=dict)
    """Seconds that nodes waited, all together, by what for; of Headrace's orders."""
    storage_reads: int | None = None
    """Requests to storage, of all nodes together; None: of a published policy."""
    ahead_samples: int | None = None
    """Of the samples from nodes' own tiers: read ahead and used once, so ready on time; the others
    are reuse. None: of a published policy, or estimated."""
    spread_seconds: npt.NDArray[np.float64] | None = None
    """Of each step: by how much the slowest rank's loading and preprocessing of its batch, or
    computing where that takes longer, exceeds the fastest's; None: of a published policy; empty:
    estimated."""
    ranks: tuple[RankStages, ...] = ()
    """Of each rank of the first node, then of the next; empty: of a published policy, or
    estimated."""

    @property
    def utilisation(self) -> float:
        """The share of the time that nodes compute."""
        return self.compute_seconds / self.seconds if self.seconds else 0.0

    @property
    def hits(self) -> float:
        """The share of the samples that came from tiers, of the node or of another one."""
        used = sum(source.samples for source in self.fetched.values())
        return (self.fetched["tier"].samples + self.fetched["peer"].samples) / used if used else 0.0

    @property
    def imbalance(self) -> float:
        """By which share the slowest node of a step takes longer than the mean of the nodes."""
        mean = self.compute_seconds + self.stall_seconds
        return self.barrier_seconds / mean if mean else 0.0


@dataclass(frozen=True)
class Refused:
    """A policy that does not support the scenario."""

    policy: Policy
    why: str


@dataclass(frozen=True, eq=False)
class Simulation:
    """What `simulate` gives."""

    scenario: Scenario
    outcomes: tuple[Outcome | Refused, ...]
    bounds: dict[str, float]
    """Seconds of all epochs without a stall, by the order; of those that were asked for."""


def policies() -> list[Policy]:
    """What can be simulated: published policies, and Headrace's orders by its own engine."""
    published = [Policy(*row) for row in _core.published_policies()]
    threads = [
        Policy(model.name, model.title, model.paper, False, order="exact", threads=model)
        for model in THREAD_MODELS
    ]
    redox = [
        Policy(name, title, _REDOX_PAPER, changes_order=True, order=Redox.name)
        for name, (title, _) in _REDOX.items()
    ]
    orders = [
        Policy(order, f"Headrace, order {order}", "", changes_order=False, order=order)
        for order in BOUNDED
    ]
    return published + threads + redox + orders


@named_arguments
def simulate(
    scenario: Scenario,
    names: Sequence[str | type[OwnPolicy]] | None = None,
    progress: Callable[[str], object] = lambda name: None,
    orders: Sequence[str] = BOUNDED,
    *,
    fast: bool = False,
) -> Simulation:
    """Runs policies on the same samples in the same order. The same scenario, and version of NumPy,
    which draws the sizes, give the same result.

    Args:
        names: of the policies, or classes of your own; None: all of `policies()`, but those that
            share a node among its ranks only where it has several.
        progress: is called with each policy's or order's name before it runs.
        orders: whose bounds are computed, each as long as its planning takes; () for none.
        fast: whether Headrace's orders are estimated step by step, in place of each read.

    Raises: InvalidArgumentError: there is no such policy or order, the scenario is wrong, or a
        policy of your own returns a wrong value. What such a policy raises.
    """
    check_run("simulate", scenario, progress, fast)
    chosen = chosen_policies("simulate", scenario, names)
    bounded = chosen_orders("simulate", orders)
    sizes = scenario.sizes.draw(scenario.seed)
    check_step("simulate: scenario", vars(scenario), len(sizes))
    outcomes = run_policies(scenario, sizes, chosen, progress, fast)
    bounds: dict[str, float] = {}
    for order in bounded:
        progress(order)
        bounds[order] = bound_seconds(scenario, sizes, order)
    return Simulation(scenario, outcomes, bounds)


def check_run(function: str, scenario: Any, progress: Any, fast: Any) -> None:
    """Arguments of a function.

    Raises: InvalidArgumentError
    """
    if not isinstance(scenario, Scenario):
        path = shown(scenario) if isinstance(scenario, str) else "path"
        raise InvalidArgumentError(
            f"{function}: scenario: got {shown(scenario)}, must be a Scenario, as "
            f"load_scenario({path}) gives"
        )
    callback(f"{function}: progress", progress)
    flag(f"{function}: fast", fast)


def chosen_policies(
    function: str, scenario: Scenario, names: Sequence[str | type[OwnPolicy]] | None
) -> list[Policy]:
    """Those of the names, or all. `function`: whose argument they are.

    Raises: InvalidArgumentError: there is no such policy; or none of what the scenario has printed
        results of.
    """
    known = {policy.name: policy for policy in policies()}
    if names is None:
        chosen = [one.name for one in known.values() if scenario.ranks > 1 or one.threads is None]
    else:
        chosen = items(f"{function}: names", names, "policies' names or classes, such as a list")
    selected = [_policy(function, name, known) for name in chosen]
    for name in scenario.printed:
        choice("printed", name, tuple(known))
    return selected


def _policy(function: str, given: object, known: Mapping[str, Policy]) -> Policy:
    if isinstance(given, type) and issubclass(given, OwnPolicy):
        name = given.__name__
        if inspect.isabstract(given):
            lacks = ", ".join(sorted(given.__abstractmethods__))
            raise InvalidArgumentError(
                f"{function}: policy {name}: is abstract; write a class derived from it "
                f"that has {lacks}"
            )
        return Policy(name, given.title or name, given.paper, given.changes_order, given)
    if isinstance(given, OwnPolicy):
        name = type(given).__name__
        raise InvalidArgumentError(
            f"{function}: policy {name}: is an object; give the class, {name}: each run makes one"
        )
    written = given.lower() if isinstance(given, str) else given  # Papers write Lobster_th.
    way = ", or a class derived from OwnPolicy"
    return known[choice(f"{function}: policy", written, tuple(known), way)]


def chosen_orders(function: str, orders: Sequence[str]) -> list[str]:
    """Those of the names. `function`: whose argument they are.

    Raises: InvalidArgumentError: there is no such order, or it has no bound.
    """
    chosen = items(f"{function}: orders", orders, "orders' names")
    for order in chosen:
        choice(f"{function}: order", order, BOUNDED)
    return chosen


def run_policies(
    scenario: Scenario,
    sizes: npt.NDArray[np.float64],
    chosen: Sequence[Policy],
    progress: Callable[[str], object],
    fast: bool,
) -> tuple[Outcome | Refused, ...]:
    """On samples of these sizes."""
    sizes.flags.writeable = False  # Policies of your own have them.
    files = any(policy.order for policy in chosen) and scenario.sizes.files
    outcomes: list[Outcome | Refused] = []
    for policy in chosen:
        progress(policy.name)
        if policy.own is not None:
            run = partial(_core.run_own_policy, preparing(policy.own, scenario, sizes))
        elif policy.order:
            outcomes.append(_run_by_engine(policy, scenario, sizes, fast=fast, files=files))
            continue
        else:
            run = partial(_core.run_published, policy.name)
        why = _why_not_published(scenario)
        outcomes.append(Refused(policy, why) if why else _run(policy, scenario, sizes, run))
    return tuple(outcomes)


def _run_by_engine(
    policy: Policy,
    scenario: Scenario,
    sizes: npt.NDArray[np.float64],
    *,
    fast: bool,
    files: bool,
) -> Outcome | Refused:
    model = policy.threads
    if model is None:
        return run_order(scenario, sizes, policy.name, fast=fast, files=files)
    why = model.why_not(scenario)
    if why:
        return Refused(policy, why)
    ran = run_order(model.of(scenario), sizes, policy.order, fast=fast, files=files)
    return replace(ran, policy=policy)


def run_order(
    scenario: Scenario,
    sizes: npt.NDArray[np.float64],
    name: str,
    *,
    fast: bool,
    block_samples: int | None = None,
    prefetch: int | None = None,
    files: bool = False,
) -> Outcome | Refused:
    """A policy that Headrace's engine runs, on samples of these sizes.

    Args:
        name: of the policy: that of the order, or one of Redox's.
        files: whether each sample is a file of its own, so that no read has two.
        block_samples: neighbours that an order of blocks reads together; None: 1 MiB of them.
        prefetch: batches that a node has ahead, at most; None: as a loader.
    """
    keys = _keys_of_orders(scenario) | {"fast": fast, "files": files}
    parameters: dict[str, int | str] = {}
    if name in _REDOX:
        parameters |= {"nodes": scenario.nodes, "block_samples": _REDOX_CHUNK}
        parameters["read"] = "kept" if files else "chunk"  # Files are read one by one.
        parameters |= _REDOX[name][1]
    if block_samples is not None:
        parameters["block_samples"] = block_samples
    if parameters:
        keys["parameters"] = parameters
    if prefetch is not None:
        keys["batches_max"] = prefetch
    (policy,) = (policy for policy in policies() if policy.name == name)
    return _run(policy, scenario, sizes, partial(_core.run_order, policy.order, **keys))


def _why_not_published(scenario: Scenario) -> str:
    if scenario.ranks > 1:
        return f"has one rank a node, the scenario {scenario.ranks}"
    if scenario.storage.reads_per_second is not None:
        return "counts bytes of storage alone, and the scenario limits its reads a second"
    return ""


def _keys_of_orders(scenario: Scenario) -> dict[str, Any]:
    """What Headrace's orders alone depend on."""
    given = {
        "reads_per_second": scenario.storage.reads_per_second,
        "reads_in_flight": scenario.storage.reads_in_flight,
        "ranks": scenario.ranks,
        "placement": scenario.placement,
        "schedule": scenario.schedule,
    }
    return {name: value for name, value in given.items() if value is not None}


def _run(
    policy: Policy,
    scenario: Scenario,
    sizes: npt.NDArray[np.float64],
    run: Callable[..., dict[str, Any]],
) -> Outcome | Refused:
    storage, staging = scenario.storage, scenario.staging
    given = {
        "storage_link_rate": storage.link_rate,
        "compute_rate": scenario.compute_rate,
        "sample_rate": scenario.sample_rate,
    }
    try:
        ran = run(
            sizes,
            nodes=scenario.nodes,
            batch_size=scenario.batch_size,
            epochs=scenario.epochs,
            seed=scenario.seed,
            preprocess_rate=scenario.preprocess_rate,
            allreduce_seconds=scenario.allreduce,
            allreduce_noise=scenario.allreduce_noise,
            storage_latency=storage.latency,
            storage=list(zip(storage.readers, storage.rates, strict=True)),
            reads_share=storage.shared_by == "reads",
            network_rate=scenario.network_rate,
            staging=(staging.capacity, staging.threads, staging.rate),
            tiers=[tier.of_node(scenario.nodes) for tier in scenario.tiers],
            **{name: rate for name, rate in given.items() if rate is not None},
        )
    except FailedPreconditionError as error:
        return Refused(policy, str(error).removeprefix(f"{policy.name}: "))
    fetched = {source: Fetched(**ran["fetched"][source]) for source in SOURCES}
    ranks = tuple(RankStages(**stages) for stages in ran.get("ranks", ()))
    return Outcome(policy=policy, **(ran | {"fetched": fetched, "ranks": ranks}))
