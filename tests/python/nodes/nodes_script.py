"""A training script on several nodes, for torchrun: records what it trains on, and goes on after a
restart. Arguments: the dataset, a folder for records, and as JSON a list of `Trouble` and the
order: its class and the arguments, or null for `exact` with tiers. `{node}` in the dataset is the
number of the node."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed

import headrace as hr
from headrace._nodes import process as node

EPOCHS = 3
GLOBAL = 12  # samples of a global batch
STORAGE_TIMEOUT = timedelta(seconds=20)  # gloo's, for a rank that is stopped
_PR_SET_PDEATHSIG = 1


@dataclass
class Trouble:
    """What happens to the job, in its first launch with `world` ranks."""

    world: int = 0
    at: int = 0
    """After so many steps."""
    rank: int = 1
    victim: str = "nothing"
    """"rank"; "node": its node process; "agent": its agent, with which all of its node ends;
    "more": the ranks wait for a launch with another node; "home": its node process, and its home
    disk is lost."""
    how: str = "SIGKILL"


def arguments_of(order: tuple[str, dict[str, Any]] | None) -> dict[str, Any]:
    if order is None:
        return {"tiers": [hr.tiers.Ram("16MiB")]}
    return {"order": getattr(hr.orders, order[0])(**order[1])}


def main(
    source: str, folder: str, troubles: list[Trouble], order: tuple[str, dict[str, Any]] | None
) -> None:
    end_with_parent()
    rank = int(os.environ["RANK"])
    source = source.format(node=os.environ["GROUP_RANK"])
    records, state_file = Path(folder), Path(folder) / "state.json"
    torch.distributed.init_process_group("gloo", timeout=STORAGE_TIMEOUT)
    world = torch.distributed.get_world_size()
    loader = hr.Loader(
        source,
        GLOBAL // world,
        output=hr.Output("numpy", ids=True, fields=["image"]),
        transform=hr.image.train(8, dtype="uint8"),
        epochs=EPOCHS,
        engine=hr.EngineOptions(prefetch=1),
        job=hr.Job(node=hr.Node(start_timeout=10, answer_timeout=2 if order is None else 5)),
        **arguments_of(order),
    )
    (records / f"node-{node_pid(loader)}").touch()
    if state_file.exists():
        loader.load_state_dict(json.loads(state_file.read_text()))
    done = 0
    with (records / f"process-{os.getpid()}-rank-{rank}-of-{world}.jsonl").open("w") as record:
        while loader.epoch < EPOCHS:
            state = loader.state_dict()
            epoch, step = state["epoch"], state["samples"] // GLOBAL
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
                for number, trouble in enumerate(troubles):
                    if (trouble.world, trouble.at) == (world, done):
                        meet(trouble, records / f"trouble-{number}", loader, source)
    if rank == 0:
        stats = loader.stats()
        parcels = stats.get("parcels")
        told = [stats["nodes"], stats["io"]["reads"], parcels and dict(parcels)]
        (records / "stats.json").write_text(json.dumps(told))
    torch.distributed.barrier()
    loader.close()
    torch.distributed.destroy_process_group()


def end_with_parent() -> None:
    """An agent that is killed takes its ranks along, and these their node processes."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def node_pid(loader: hr.Loader) -> int:
    place = loader._feed._session.place
    assert place is not None
    return node._started[os.getpid(), place.socket].pid


def meet(trouble: Trouble, once: Path, loader: hr.Loader, source: str) -> None:
    torch.distributed.barrier()  # All see the same of `once`.
    if once.exists():
        return
    torch.distributed.barrier()
    if trouble.victim == "more":
        once.touch()
        signal.pause()  # Until the agent starts the ranks again.
    if int(os.environ["RANK"]) != trouble.rank or trouble.victim == "nothing":
        return
    once.touch()
    number = signal.Signals[trouble.how]
    if trouble.victim == "home":
        home = Path(source) / f"home-{os.environ['GROUP_RANK']}"
        home.rename(home.with_name("lost"))
    if trouble.victim in ("node", "home"):
        os.kill(node_pid(loader), number)
    elif trouble.victim == "agent":
        os.kill(os.getppid(), number)
        signal.pause()
    else:
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    main(
        *sys.argv[1:3],
        [Trouble(**each) for each in json.loads(sys.argv[3])],
        json.loads(sys.argv[4]),
    )
