"""One node of redox_remote.py: delivers an epoch of the order `redox`, and prints what was counted.

python redox_side.py JSON
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import headrace as hr
from headrace import _core

_SENDING_S = 30.0


def _when_sent(loader: hr.Loader[Any], samples: float) -> Any:
    """What was counted when the other nodes have taken what this one sends; or too late for it."""
    until = time.monotonic() + _SENDING_S
    while True:
        stats: Any = loader.stats()
        if stats["parcels"]["sent_samples"] >= samples or time.monotonic() > until:
            return stats
        time.sleep(0.05)


def _epoch(loader: hr.Loader[Any], train: float) -> tuple[int, list[float]]:
    """Samples of an epoch whose batches take `train` seconds each, and the wait for each batch."""
    samples, waits = 0, []
    asked = time.monotonic()
    for batch in loader:
        waits.append(time.monotonic() - asked)
        samples += len(batch.sample_id)
        if train > 0:
            time.sleep(train)
        asked = time.monotonic()
    return samples, waits


def main(spec: dict[str, object]) -> None:
    given = dict(spec["order"])  # type: ignore[call-overload]
    nodes, node = int(str(spec["nodes"])), int(str(spec["node"]))
    order = hr.orders.Redox(nodes=nodes, block_samples=int(str(spec["chunk"])), **given)
    rate = spec.get("rate")
    loader = hr.Loader(
        str(spec["pack"]),
        int(str(spec["batch"])),
        order=order,
        memory=spec.get("memory"),  # type: ignore[arg-type]
        output=hr.Output("numpy", ids=True),
        epochs=1,
        job=hr.Job(node=hr.Node(addresses=spec["addresses"], answer_timeout=600, rate=rate)),  # type: ignore[arg-type]
    )
    begin = time.monotonic()
    samples, waits = _epoch(loader, float(str(spec.get("train", 0))))
    seconds = time.monotonic() - begin
    parameters = loader.state_dict()["order_parameters"]
    stream = _core.OrderStream(
        "redox",
        {name: value for name, value in parameters.items() if name != "block_samples"},
        index=loader._feed.dataset.index,  # What the loader plans with.
        block_samples=parameters["block_samples"],
        batch_size=int(str(spec["batch"])),
        world_size=nodes,
        rank=node,
        ranks=1,
        exchange=True,
        seed=loader.state_dict()["seed"],
        epochs=1,
    )
    while len(stream.ids(1000)) > 0:
        pass
    stats = _when_sent(loader, stream.counters()["samples_sent"])
    result = {
        "samples": samples,
        "seconds": seconds,
        "waits": waits,
        "parcels": stats["parcels"],
        "bytes": stats["bytes"],
        "planned": stream.counters(),
        "parameters": parameters,
    }
    print(json.dumps(result), flush=True)
    loader.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
