"""A rank that knows of its job only what its launcher says: prints what that is, and the samples of
two epochs. Arguments: the dataset, and a folder for what it says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from loader_data import FLAT, payload_ids

import headrace as hr
from headrace._nodes.launch import find_launch


def main(source: str, folder: str) -> None:
    launch = find_launch()
    assert launch is not None
    with hr.Loader(
        source, 3, transform=FLAT, output=hr.Output("numpy", ids=True), epochs=2,
        tiers=[hr.tiers.Ram("16MiB")], engine=hr.EngineOptions(prefetch=2),
    ) as loader:  # fmt: skip
        epochs = [[payload_ids(batch) for batch in loader] for _ in range(2)]
        stats = loader.stats()
    told = {"launch": vars(launch), "epochs": epochs}
    told |= {name: stats[name] for name in ("nodes", "sources")}
    part = Path(folder) / f"{os.getpid()}.part"
    part.write_text(json.dumps(told))
    part.rename(Path(folder) / f"rank-{launch.rank}.json")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
