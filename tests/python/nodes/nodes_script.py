"""A training script on several nodes, for torchrun: records what it trains on, and goes on after a
restart. Arguments: the dataset, a folder for records, the step of the first launch at which rank
1's node process or rank 1 itself is killed, and which ("node", "rank" or "nothing")."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch.distributed

import headrace as hr
from headrace._loading import node

EPOCHS = 3


def main(source: str, folder: str, at: int, victim: str) -> None:
    rank = int(os.environ["RANK"])
    records, state_file = Path(folder), Path(folder) / "state.json"
    torch.distributed.init_process_group("gloo")
    world = torch.distributed.get_world_size()
    loader = hr.Loader(
        source,
        12 // world,
        ids=True,
        fields=["image"],
        transform=hr.image.train(8, dtype="uint8"),
        output="numpy",
        epochs=EPOCHS,
        engine=hr.Engine(prefetch=1),
        tiers=[hr.tiers.Ram("16MiB")],
        node_process=hr.NodeProcess(),
        nodes=hr.Nodes(answer_timeout=2),
    )
    resumed = state_file.exists()
    if resumed:
        loader.load_state_dict(json.loads(state_file.read_text()))
    done = 0
    with (records / f"process-{os.getpid()}-rank-{rank}.jsonl").open("w") as record:
        while loader.epoch < EPOCHS:
            state = loader.state_dict()
            epoch, step = state["epoch"], state["samples"] // 12
            for batch in loader:
                step += 1
                assert (batch.image[:, 0, 0, 0] == batch.sample_id).all()
                record.write(json.dumps([epoch, step, batch.sample_id.tolist()]) + "\n")
                record.flush()
                torch.distributed.barrier()
                if rank == 0:
                    part = state_file.with_suffix(".part")
                    part.write_text(json.dumps(loader.state_dict()))
                    part.rename(state_file)
                done += 1
                if not resumed and rank == 1 and done == at:
                    kill(loader, victim)
    if rank == 0:
        stats = loader.stats()
        (records / "stats.json").write_text(json.dumps([stats["nodes"], stats["io"]["reads"]]))
    torch.distributed.barrier()
    loader.close()
    torch.distributed.destroy_process_group()


def kill(loader: hr.Loader, victim: str) -> None:
    if victim == "rank":
        os.kill(os.getpid(), signal.SIGKILL)
    elif victim == "node":
        place = loader._feed._session.place
        assert place is not None
        os.kill(node._started[os.getpid(), place.socket].pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
