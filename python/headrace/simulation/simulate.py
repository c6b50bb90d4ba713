"""Runs the policies of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._arguments import choice, items
from headrace.errors import FailedPreconditionError
from headrace.simulation.bounds import BOUNDED, bound_seconds
from headrace.simulation.own import OwnPolicy, preparing
from headrace.simulation.scenario import Scenario

SOURCES = ("tier", "peer", "storage", "on_demand")
"""Where nodes get samples from: their own tier, another node's, storage ahead of their use, or
storage when they are needed."""


@dataclass(frozen=True)
class Policy:
    """A published policy, or one of your own."""

    name: str
    title: str
    paper: str
    changes_order: bool
    """Its nodes do not train on what the job's order says."""
    own: type[OwnPolicy] | None = None
    """The class of one of your own."""


@dataclass(frozen=True)
class Fetched:
    """What nodes got from a source, all together."""

    samples: int
    bytes: float
    seconds: float
    """Of the threads that fetched."""


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
    fetched: dict[str, Fetched]
    """By source, see `SOURCES`."""
    filled_bytes: float
    """That tiers read from storage, before and during training,"""
    copied_bytes: float
    """and from other nodes."""
    samples_used: int
    """Of the dataset, by any node, at least once."""
    epoch_seconds: npt.NDArray[np.float64]
    """The first with what comes before it."""
    step_seconds: npt.NDArray[np.float64]


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
    """Seconds of all epochs without a stall, by the order."""


def policies() -> list[Policy]:
    """The published policies that can be simulated."""
    return [Policy(*row) for row in _core.published_policies()]


def simulate(
    scenario: Scenario,
    names: Sequence[str | type[OwnPolicy]] | None = None,
    progress: Callable[[str], object] = lambda name: None,
) -> Simulation:
    """Runs policies on the same samples in the same order. The same scenario, and version of NumPy,
    which draws the sizes, give the same result.

    Args:
        names: of the policies, or classes of your own; None: all published ones.
        progress: is called with each policy's or order's name before it runs.

    Raises: InvalidArgumentError: there is no such policy, the scenario is wrong, or a policy of
    your own returns a wrong value. What such a policy raises.
    """
    known = {policy.name: policy for policy in policies()}
    chosen = list(known) if names is None else items("names", names, "policies' names")
    selected = [_policy(name, known) for name in chosen]
    for name in scenario.printed:
        choice("printed", name, tuple(known))
    sizes = scenario.sizes.draw(scenario.seed)
    sizes.flags.writeable = False  # Policies of your own have them.
    outcomes: list[Outcome | Refused] = []
    for policy in selected:
        progress(policy.name)
        outcomes.append(_run(policy, scenario, sizes))
    bounds: dict[str, float] = {}
    for order in BOUNDED:
        progress(order)
        bounds[order] = bound_seconds(scenario, sizes, order)
    return Simulation(scenario, tuple(outcomes), bounds)


def _policy(given: object, known: Mapping[str, Policy]) -> Policy:
    if isinstance(given, type) and issubclass(given, OwnPolicy):
        name = given.__name__
        return Policy(name, given.title or name, given.paper, given.changes_order, given)
    return known[choice("policy", given, tuple(known), ", or a class derived from OwnPolicy")]


def _run(policy: Policy, scenario: Scenario, sizes: npt.NDArray[np.float64]) -> Outcome | Refused:
    storage, staging = scenario.storage, scenario.staging
    link = {} if storage.link_rate is None else {"storage_link_rate": storage.link_rate}
    if policy.own is None:
        run = partial(_core.run_published, policy.name)
    else:
        run = partial(_core.run_own_policy, preparing(policy.own, scenario, sizes))
    try:
        ran: dict[str, Any] = run(
            sizes,
            nodes=scenario.nodes,
            batch_size=scenario.batch_size,
            epochs=scenario.epochs,
            seed=scenario.seed,
            compute_rate=scenario.compute_rate,
            preprocess_rate=scenario.preprocess_rate,
            storage=list(zip(storage.readers, storage.rates, strict=True)),
            network_rate=scenario.network_rate,
            staging=(staging.capacity, staging.threads, staging.rate),
            tiers=[(tier.capacity, tier.threads, tier.rate) for tier in scenario.tiers],
            **link,
        )
    except FailedPreconditionError as error:
        return Refused(policy, str(error).removeprefix(f"{policy.name}: "))
    fetched = {source: Fetched(**ran["fetched"][source]) for source in SOURCES}
    return Outcome(policy=policy, **(ran | {"fetched": fetched}))
