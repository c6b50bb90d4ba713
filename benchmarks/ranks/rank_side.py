"""One rank of four_ranks.py: an epoch for each line on its standard input.

    python rank_side.py JSON

Prints a line of JSON when its loader is there, and one after each epoch.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import headrace as hr


def _loader(spec: dict[str, Any]) -> hr.Loader[Any]:
    rank, ranks = spec["rank"], spec["ranks"]
    transform = hr.image.train(224, mean=None, std=None, dtype="uint8", layout="NHWC")
    node = hr.Node(local_rank=rank, local_world_size=ranks) if spec["shared"] else None
    return hr.Loader(
        spec["pack"],
        spec["batch"],
        order=spec["order"],
        transform=transform if spec["images"] else None,
        output=hr.Output("numpy", fields=["image"]),
        epochs=spec["epochs"],
        memory=spec["memory"],
        tiers=[hr.tiers.Ram(spec["tier_bytes"])] if spec["tier_bytes"] else None,
        job=hr.Job(rank=rank, world_size=ranks, node=node),
    )


def _told(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)


def main(text: str) -> None:
    with _loader(json.loads(text)) as loader:
        _told({"steps": len(loader)})
        for _ in sys.stdin:
            samples = 0
            payload = 0
            for (rows,) in loader:
                samples += len(rows)
                payload += sum(row.nbytes for row in rows)
                del rows
            stats = loader.stats()
            _told(
                {
                    "samples": samples,
                    "payload_bytes": payload,
                    "ended": time.monotonic(),
                    "read": stats["bytes"]["read"],
                    "planned": [tier["planned"] for tier in stats["tiers"] or ()],
                    "sources": stats["sources"],
                }
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
