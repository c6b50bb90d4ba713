"""What each node of tools/cluster runs: trains, and gives the others what its tier holds. Then node
0 asks for the loaders of all nodes, if "ask" follows the dataset and a folder for records."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import headrace as hr

EPOCHS = 2


def main(source: str, folder: Path, asks: bool) -> None:
    node, nodes = int(os.environ["GROUP_RANK"]), int(os.environ["WORLD_SIZE"])
    addresses = os.environ["HEADRACE_CLUSTER_ADDRESSES"].split(",")
    (folder / addresses[node].split(":")[0]).write_text(str(os.getpid()))
    done = folder / f"done-{node}"
    os.mkfifo(done)
    with hr.Loader(
        source,
        12 // nodes,
        order="exact",
        output=hr.Output("numpy", ids=True, fields=["image"]),
        transform=hr.image.train(8, dtype="uint8"),
        engine=hr.EngineOptions(monitor=True, prefetch=2),
        tiers=[hr.tiers.Ram("16MiB")],
        job=hr.Job(
            node=hr.Node(
                addresses=addresses,
                listen=os.environ["HEADRACE_CLUSTER_LISTEN"],
                open_network=True,
                answer_timeout=60,
            )
        ),
    ) as loader:
        for _ in range(EPOCHS):
            for batch in loader:
                assert (batch.image[:, 0, 0, 0] == batch.sample_id).all()
        loader.trace(folder / f"trace-{node}.json")
        stats = loader.stats()
        told = {"nodes": stats["nodes"], "reads": stats["io"]["reads"]}
        (folder / f"stats-{node}.json").write_text(json.dumps(told))
        if node:
            done.read_bytes()  # Until node 0 has asked.
            return
        if asks:
            # As ssh: runs a command where the process of a node is.
            process = f'$(cat {shlex.quote(str(folder))}/"$1")'
            inside = f'exec nsenter --target {process} --net -- "${{@:2}}"'
            via = shlex.join(["bash", "-c", inside, "via", "{node}"])
            asked = subprocess.run(
                ["headrace", "top", "--json", "--job", "--via", via],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            (folder / "top.json").write_text(asked.stdout or asked.stderr)
        for other in range(1, nodes):
            (folder / f"done-{other}").write_bytes(b"")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:] == ["ask"])
