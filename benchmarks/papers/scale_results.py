"""NoPFS, figures 12 and 13: where samples come from by the number of nodes, and times of batches.

    python benchmarks/papers/scale_results.py [--check]

Writes its part of docs/paper-results.md. Nothing is measured: the same versions of Headrace and
NumPy give the same tables on any machine. --check: only says whether the page has them. Takes some
ten minutes. Headrace's order is estimated step by step (`fast`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import _page
import numpy as np

from headrace import simulation
from headrace.simulation import Outcome

_NODES = (32, 64, 128, 256)
_BATCHES = (32, 64, 120)
_EPOCHS = 3  # of `exact`, and of figure 13


@cache
def simulated(
    name: str, policy: str, nodes: int, batch_size: int, epochs: int, *, tiers: bool = True
) -> Outcome:
    print(f"simulating {name}: {policy}, {nodes} nodes, batches of {batch_size}", flush=True)
    scenario = simulation.load_scenario(name)
    scenario = replace(scenario, nodes=nodes, batch_size=batch_size, epochs=epochs)
    if not tiers:
        scenario = replace(scenario, tiers=())
    outcome = simulation.simulate(scenario, [policy], orders=(), fast=True).outcomes[0]
    if not isinstance(outcome, Outcome):
        raise SystemExit(f"{name}, {policy}: {outcome.why}")
    return outcome


def on_daint(policy: str, nodes: int, *, tiers: bool = True) -> Outcome:
    epochs = _EPOCHS if policy == "exact" else 10
    return simulated("nopfs-12", policy, nodes, 64, epochs, tiers=tiers)


def on_lassen(policy: str, batch_size: int) -> Outcome:
    return simulated("nopfs-13", policy, 128, batch_size, _EPOCHS)


def shares(outcome: Outcome, *sources: str) -> list[float]:
    """Of all samples used."""
    used = sum(fetched.samples for fetched in outcome.fetched.values())
    return [outcome.fetched[source].samples / used for source in sources]


def figure_12() -> Iterator[str]:
    yield (
        "| nodes | storage, MB/s a node | `nopfs`: from its tier, storage | `coordl`: own tier, "
        "others', storage | `exact`: own tier, others', storage | it reads from storage, of what "
        "nodes use | s of its last epoch | without tiers |"
    )
    yield "|---|" + "---:|" * 7
    for nodes in _NODES:
        cells = [f"{nodes}", f"{best_rate(nodes) / nodes / 1e6:.0f}"]
        for policy in ("nopfs", "coordl", "exact"):
            sources = ("tier", "storage") if policy == "nopfs" else ("tier", "peer", "storage")
            found = shares(on_daint(policy, nodes), *sources)
            cells.append(", ".join(f"{share:.1%}" for share in found))
        ran, bare = on_daint("exact", nodes), on_daint("exact", nodes, tiers=False)
        used = sum(fetched.bytes for fetched in ran.fetched.values())
        cells.append(f"{(ran.fetched['storage'].bytes + ran.filled_bytes) / used:.0%}")
        cells += [f"{outcome.epoch_seconds[-1]:.1f}" for outcome in (ran, bare)]
        yield f"| {' | '.join(cells)} |"


def best_rate(nodes: int) -> float:
    """Of storage, bytes a second."""
    storage = simulation.load_scenario("nopfs-12").storage
    return float(np.interp(nodes, storage.readers, storage.rates))


def first_uses(nodes: int, epochs: int) -> float:
    """Of a node's uses of samples, the share that is the first of its sample."""
    return (1 - (1 - 1 / nodes) ** epochs) * nodes / epochs


def figure_12_notes() -> Iterator[str]:
    few, many = (on_daint("exact", nodes) for nodes in (_NODES[0], _NODES[-1]))
    (tier_few, peer_few), (tier_many, peer_many) = (
        shares(outcome, "tier", "peer") for outcome in (few, many)
    )
    yield (
        '- "At smaller scales ... NoPFS is able to prefetch into on-node memory quickly", '
        '"beyond 64 GPUs ... NoPFS instead fetches samples from remote nodes": the trend holds '
        f"for `exact` with NoPFS's placement, `frequency`: {tier_few:.0%} from the own tier and "
        f"{peer_few:.0%} from other nodes with {_NODES[0]} nodes, {tier_many:.0%} and "
        f"{peer_many:.0%} with {_NODES[-1]}. Its tiers read ahead from storage, so a first use may "
        "come from the own tier."
    )
    first = ", ".join(f"{first_uses(nodes, 10):.1%}" for nodes in _NODES)
    yield (
        f"- A node uses each of its samples about once: of its uses in 10 epochs {first} are first "
        "ones. `nopfs` takes these from storage, as the thesis's simulator did, so for it the "
        "statement does not hold; and no cache of a node's own uses relieves storage at scale. "
        "What other nodes have cached must be read from them, as `coordl` does."
    )
    without = on_daint("exact", _NODES[-1], tiers=False).epoch_seconds[-1]
    yield (
        f"- `exact` reads each sample from storage once in the three epochs, with {_NODES[-2]} "
        f"nodes and more. With {_NODES[-1]} its last epoch takes "
        f"{without / many.epoch_seconds[-1]:.2f} times as long without tiers; printed is 2.2, "
        "NoPFS over PyTorch, on a storage whose rates are not printed."
    )
    staging = on_daint("staging", _NODES[-1])
    rate = staging.fetched["storage"].bytes / staging.seconds
    yield (
        f"- Times of published policies are not shown: with {_NODES[-1]} nodes `staging` gets "
        f"{rate / 1e9:.1f} GB/s out of storage that has {best_rate(_NODES[-1]) / 1e9:.1f}, since "
        "within a step nodes are simulated one after the other (rules 1 and 2 of the model)."
    )
    yield (
        "- Stall times and the factors of figures 10, 11 and 14 to 16 (2.2 and 1.9 on 256 GPUs of "
        "Piz Daint; 5.4 and 1.7, 2.4, 2.1 on 1,024 of Lassen; 1.42 on 256) are not reproducible "
        "here, because they need these machines."
    )


def later_steps(outcome: Outcome) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds of the steps after the first epoch."""
    steps = outcome.step_seconds
    return steps[len(steps) // _EPOCHS :]


def figure_13() -> Iterator[str]:
    yield (
        "| batch of a rank | `staging`, s: mean, 1 to 99 % | deviation over the mean | "
        "`nopfs`, s: mean, 1 to 99 % | deviation over the mean |"
    )
    yield "|---|" + "---:|" * 4
    for batch_size in _BATCHES:
        cells = [f"{batch_size}"]
        for policy in ("staging", "nopfs"):
            steps = later_steps(on_lassen(policy, batch_size))
            low, high = np.quantile(steps, [0.01, 0.99])
            cells += [
                f"{steps.mean():.4f}, {low:.4f} to {high:.4f}",
                f"{steps.std() / steps.mean():.3f}",
            ]
        yield f"| {' | '.join(cells)} |"


def figure_13_notes() -> Iterator[str]:
    scenario = simulation.load_scenario("nopfs-13")
    assert scenario.compute_rate is not None
    storage = scenario.storage
    most = max(storage.rates) / scenario.compute_rate
    of_rank = float(np.interp(128, storage.readers, storage.rates)) / 128
    yield (
        '- "NoPFS is faster at every batch size", "for PyTorch [the variance] increases '
        'significantly with larger batches": not derivable. A rank needs the same bytes a second '
        f"whatever its batch: at most {scenario.compute_rate / 1e6:.0f} MB/s of computing, and "
        f"storage gives each of 128 ranks {of_rank / 1e6:.0f}. So the two are equal, and steps "
        "vary by their bytes alone, by a smaller share in larger batches."
    )
    yield (
        '- "PyTorch does not scale beyond 256 GPUs on Lassen" (7.1): by these rates storage serves '
        f"{most:.0f} ranks."
    )


def tables() -> str:
    return _page.joined(
        {
            "NoPFS, figure 12, scenario `nopfs-12` (`exact`: 3 epochs): where samples come from": (
                [*figure_12(), "", *figure_12_notes()]
            ),
            "NoPFS, figure 13, scenario `nopfs-13`: seconds of a step, without the first epoch": (
                [*figure_13(), "", *figure_13_notes()]
            ),
        }
    )


if __name__ == "__main__":
    sys.exit(_page.run("scale_results", __doc__, tables))
