"""All ways to read shared storage on several nodes, side by side: the set-up of Redox, scaled.

    python benchmarks/nodes/side_by_side.py [--part P] [--rows 0,3] [--quick]

Redox (arXiv 2505.16280) reads ImageNet-1k, 1,280,640 samples of 100 KB, on three nodes that
together can cache 25 %, in chunks of 64; ten of them share the slots of a virtual chunk, which fits
its table 6. PyTorch reads at 23 MB/s there, chunks come at 16 times that, and training takes 35 %
of PyTorch's epoch (ResNet50, table 1). Here are 15,360 records of 30 KB, also in chunks of 64 and
with ten a virtual chunk, on three nodes made by tools/cluster: storage of 128 MB/s and 267 reads/s
a node (8 MB/s by single samples), links of four times that, memory for 25 % of the data on all
nodes together, a training step that takes 35 % of torch's epoch. So each ratio is the paper's. The
window is 67 requests, as much of the data as 5,600 are of ImageNet-1k. Samples are smaller because
the kernel counts a read of 6.4 MB as 13: with 100 KB and a sixteenth of the rate that would leave
chunks a third of it. Two cores are enough for these rates; what they used is recorded.

Each way runs in three phases: *warm*, an epoch that fills caches and does not count (for torch
and tiers: until these are full); *bare*, batches taken as fast as they come, for an epoch;
*training*, a step after each batch, for five epochs, so that an epoch's time is the mean of five
without the first, as in the paper. Of *bare* torch and tiers, whose rate does not change within an
epoch, are measured over a third of one. Seconds and stall are the slowest node's, bytes the sum
over nodes, counted by the kernel: of each node's control group, and of its link. `homes`: the order
`epoch` with storage that all nodes share and with the blocks dealt to three homes, in turns, for
several epochs; with the rates above, and with a quarter of them, by the batch of a node. Loading
alone takes 8 ms a step of 3 x 32 samples, 30 of 3 x 128, and four times that with a quarter; 100 ms
in the paper.

Each run is a line in results/side_by_side.jsonl; the page shows the newest of each. Parts: rows,
quality, homes; `--page` only writes the page.

Quality is planned, not read, twice: for what is run here, and for 1,280,640 samples with a window
of 5,600 and batches of 3 x 128. Groups are runs of 64 neighbours.

Goal: with homes `epoch` stalls at most 5 % of an epoch longer than with shared storage.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import _data
import _harness
import numpy as np
from _reports import side_by_side_report

from cluster.network import why_no_namespaces
from headrace import _core
from headrace.cli._parts.orders import global_ids
from headrace.orders import dealt_homes

ROOT = Path(__file__).resolve().parents[2]
NODES = 3
_SAMPLES = 15_360
_QUICK_SAMPLES = 3_840
_SAMPLE_BYTES = 30_000
_STORAGE = 128 * 10**6  # bytes/s of a node
_LINK = 4 * _STORAGE
_READS = round(_STORAGE / 16 / _SAMPLE_BYTES)  # a second
_BATCH = 32  # of a node
_WORKERS = 2
_AHEAD = 8
_CACHE = 0.25  # of the data, on all nodes together
_FLOW_BYTES = 64 * 2**20  # of a node's memory, for reads, batches and parcels
_CHUNK = 64
_BLOCK_BYTES = 2**20  # that `epoch` reads at once by default
_PER_VIRTUAL = 10
_PAPER_SAMPLES = 1_280_640
_PAPER_BYTES = 100_000  # a sample
_PAPER_WINDOW = 5_600
_PAPER_BATCH = 128
_TRAINING = 0.35  # of torch's epoch from storage alone
_PART = 3  # of an epoch, what torch and tiers are measured over, bare
_EPOCHS = 5  # with training; the first epoch does not count
_SEEDS = (0, 1, 2)
_HOMES_ROUNDS = 3
_HOMES_EPOCHS = 4
_HOMES_GOAL = 0.05  # of an epoch
_RUN_S_MAX = 600.0


@dataclass(frozen=True)
class Row:
    """A way to read."""

    name: str
    order: str
    options: dict[str, Any] = field(default_factory=dict)
    windowed: bool = False
    placement: str | None = None
    """Of a tier in memory."""
    io: str = "auto"

    @property
    def fills_a_cache(self) -> bool:
        """Its rate changes only until that is full."""
        return self.order == "torch" or self.placement is not None

    def window(self, samples: int) -> int:
        """As much of the data as what fits the paper's numbers is of its data."""
        return max(2, samples * _PAPER_WINDOW // _PAPER_SAMPLES)

    def given(self, samples: int) -> dict[str, Any]:
        """What the order is given on a node."""
        options = {"name": self.order, **self.options}
        if self.order == "redox":
            options |= {"block_samples": _CHUNK, "chunks_per_virtual": _PER_VIRTUAL}
            if self.windowed:
                options["prefetch"] = self.window(samples)
        if self.order == "epoch":
            options["pool"] = int(_CACHE * samples * _SAMPLE_BYTES)
        return options


def _redox(name: str, windowed: bool, read: str = "chunk", **options: Any) -> Row:
    options = {"refill": "max_fill", "read": read, "remote_limit": 10**8, **options}
    return Row(f"redox, {name}", "redox", options, windowed)


ROWS = (
    Row("torch", "torch"),
    Row("exact, tiers", "exact", placement="coordinated"),
    Row("batch, tiers", "batch", placement="coordinated"),
    _redox("none", False, refill="random"),
    _redox("fill", False),
    _redox("window", True, refill="random"),
    _redox("both", True),
    _redox("both, room 1 MB", True, remote_limit=10**6),
    _redox("both, remap", True, remap=True),
    _redox("both, 8 slot classes", True, slot_classes=8),
    _redox("none, kept", False, read="kept", refill="random"),
    _redox("both, kept", True, read="kept"),
    Row("epoch, shared", "epoch"),
    Row("epoch, homes", "epoch", {"homes": NODES}),
    Row("exact, pinned", "exact", placement="pinned"),
    Row("exact, no I/O", "exact", io="synthetic"),
)


def _run(pack: Path, spec: dict[str, Any], slower: int = 1) -> dict[str, Any]:
    """What the nodes counted: by phase the job's figures, and each node's own."""
    with tempfile.TemporaryDirectory(prefix="headrace-side-", dir="/dev/shm") as folder:
        spec = {
            "pack": str(pack),
            "field": "record",
            "cache_folder": folder,
            **spec,
        }
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "cluster", "run", "-n", str(NODES),
             "--link", f"{_LINK / slower / 1e6}MB/s", "--storage", f"{_STORAGE / slower / 1e6}MB/s",
             "--reads", str(_READS // slower), "--storage-path", pack, "--", sys.executable,
             Path(__file__).with_name("side_by_side_node.py"), json.dumps(spec)],
            capture_output=True, text=True, timeout=_RUN_S_MAX, check=False,
        )  # fmt: skip
    if done.returncode != 0 or "NOT limited" in done.stderr:
        raise SystemExit(f"{spec['order']}:\n{done.stdout}{done.stderr}")
    of_nodes = [
        json.loads(line.partition("] result ")[2])
        for line in sorted(done.stdout.splitlines())
        if "] result " in line
    ]
    phases = {
        phase["name"]: _job([node["phases"][phase["name"]] for node in of_nodes], phase["epochs"])
        for phase in spec["phases"]
    }
    return {"phases": phases, "nodes": of_nodes}


def _job(phases: list[dict[str, Any]], epochs: float) -> dict[str, Any]:
    """A phase of all nodes, for one epoch: the slowest node's times, everybody's bytes."""
    size = sum(each["bytes"] for each in phases)
    slowest = max(phases, key=lambda each: each["seconds"])
    return {
        "epoch_s": slowest["seconds"] / epochs,
        "stall_s": max(each["stall_s"] for each in phases) / epochs,
        "storage": sum(each["storage_bytes"] for each in phases) / size,
        "reads": sum(each["storage_reads"] for each in phases) / epochs,
        "network": sum(each["received_bytes"] for each in phases) / size,
        "cores": sum(each["cpu_s"] / each["seconds"] for each in phases),
        "epochs_s": [max(laps) for laps in zip(*(each["laps_s"] for each in phases), strict=True)],
    }


def _spec(row: Row, samples: int, batch: int = _BATCH, training: int = _EPOCHS) -> dict[str, Any]:
    steps = samples // (NODES * batch)  # an epoch
    step_s = _TRAINING * batch / _READS
    tier = int(_CACHE * samples * _SAMPLE_BYTES / NODES)
    # Phases end inside an epoch, and never with one: a node that has taken an epoch's last batch
    # serves the others for a while only.
    warm, part = steps + 1, steps
    if row.fills_a_cache:
        part = max(1, steps // _PART)
    if row.order == "torch":
        warm = min(steps, int(_CACHE * samples / NODES / batch) + 2 * _WORKERS)
    phases = [
        {"name": name, "steps": count, "step_s": seconds, "epochs": count / steps}
        for name, count, seconds in (
            ("warm", warm, 0.0), ("bare", part, 0.0), ("training", training * steps, step_s)
        )
    ]  # fmt: skip
    return {
        "batch": batch, "order": row.given(samples), "placement": row.placement, "io": row.io,
        "meet": row.name not in ("epoch, shared", "exact, no I/O"), "tier_bytes": tier,
        "fill_steps": warm,
        "memory": tier + _FLOW_BYTES, "workers": _WORKERS, "ahead": _AHEAD, "phases": phases,
    }  # fmt: skip


def _stream(row: Row, samples: int, batch: int, seed: int) -> _core.OrderStream:
    """The plan of all nodes, from epoch 1 on."""
    options = row.given(samples)
    name = str(options.pop("name"))
    name = "exact" if name == "torch" else name
    sample_bytes = _SAMPLE_BYTES if samples != _PAPER_SAMPLES else _PAPER_BYTES
    unit = options.pop("block_samples", _BLOCK_BYTES // sample_bytes)
    blocks = _core.Blocks.uniform(samples, unit)
    parameters: dict[str, int | str] = {}
    homes = None
    ranks = 1
    if name == "redox":
        limit = options.pop("remote_limit") * samples // _SAMPLES // _SAMPLE_BYTES
        parameters = options | {"nodes": NODES, "remote_bytes": limit}
        parameters["remap"] = int(parameters.get("remap", 0))
    elif name == "epoch":
        parameters = {"pool_bytes": int(_CACHE * samples), "homes": options.get("homes", 1)}
    elif name == "batch":
        homes, ranks = dealt_homes(samples, NODES, 1)[:, 0], NODES
    return _core.OrderStream(
        name, parameters, index=blocks, batch_size=NODES * batch // ranks, world_size=ranks,
        rank=0, ranks=ranks, seed=seed, epoch=1, epochs=3, homes=homes,
    )  # fmt: skip


def _quality(row: Row, samples: int, batch: int, seed: int) -> dict[str, Any]:
    stream = _stream(row, samples, batch, seed)
    ids = np.concatenate(list(global_ids([stream], NODES * batch)))
    meter = _core.QualityMeter(
        _core.Blocks.uniform(samples, _CHUNK), batch=NODES * batch, padded=len(ids) // 2 - samples
    )
    for epoch in np.split(ids, 2):
        meter.add(epoch)
        meter.end_epoch()
    report = meter.report()
    values = {test["name"]: test["value"] for test in report["tests"]}
    return {
        "vif": values[f"vif_{NODES * batch}"],
        "prefix": values.get("prefix_mixed", values.get("prefix")),
        "verdict": report["verdict"],
        "loads_per_chunk": stream.counters().get("loads_per_chunk"),
    }


def _qualities(row: Row, samples: int, batch: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Medians; the worst verdict."""
    found = [_quality(row, samples, batch, seed) for seed in seeds]
    grades = ("excellent", "good", "fair", "poor")
    return {
        "vif": median(each["vif"] for each in found),
        "prefix": median(each["prefix"] for each in found),
        "verdict": max((each["verdict"] for each in found), key=grades.index),
        "loads_per_chunk": found[0]["loads_per_chunk"],
    }


def _in_turns(
    pack: Path, samples: int, slower: int, batch: int, rounds: int
) -> list[dict[str, Any]]:
    """`epoch` with shared storage and with homes, several epochs of each."""
    rows = [row for row in ROWS if row.order == "epoch"]
    found = []
    for number in range(rounds):
        runs = {}
        for row in rows if number % 2 == 0 else reversed(rows):
            spec = _spec(row, samples, batch, training=1)
            steps = spec["phases"][1]["steps"]
            spec["phases"][1] |= {"steps": _HOMES_EPOCHS * steps, "epochs": _HOMES_EPOCHS}
            run = _run(pack, spec, slower)
            runs[row.name] = run["phases"]
            print(f"| 1/{slower} | {batch} | {number} | {row.name} | {_shown(run)} |", flush=True)
        found.append(runs)
    return found


def _shown(run: dict[str, Any]) -> str:
    bare, training = run["phases"]["bare"], run["phases"]["training"]
    return (
        f"{bare['epoch_s']:.2f} s | training {training['epoch_s']:.2f} s, stall "
        f"{training['stall_s']:.2f} s | storage {bare['storage']:.3f} in {bare['reads']:.0f} reads "
        f"| network {bare['network']:.3f} | {bare['cores']:.2f} cores"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--part", choices=("rows", "homes", "quality"), help="default: all")
    parser.add_argument("--rows", help="some of them, by number from 0: 0,3")
    cells = ",".join(f"{slower}:{batch}" for slower in (1, 4) for batch in (_BATCH, _PAPER_BATCH))
    parser.add_argument("--cells", default=cells, help="of homes: how much slower, a node's batch")
    parser.add_argument("--rounds", type=int, default=_HOMES_ROUNDS, help="of homes")
    parser.add_argument("--epochs", type=int, default=_EPOCHS, help="with training, of rows")
    parser.add_argument("--quick", action="store_true", help="a little data: to see that it works")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page")
    return parser


def main() -> None:
    given = _parser().parse_args()
    if given.page:
        side_by_side_report.write()
        return
    why = why_no_namespaces() or (None if _harness.can_throttle() else "no cgroup v1 with blkio")
    if why is not None:
        print(f"skipped: needs root, network namespaces and control groups: {why}")
        return
    samples = _QUICK_SAMPLES if given.quick else _SAMPLES
    pack = Path()
    if given.part != "quality":
        _, pack = _data.record_data(given.data, samples, _SAMPLE_BYTES)
        _harness.make_cold(sorted(path for path in pack.rglob("*") if path.is_file()))
    chosen = [ROWS[int(at)] for at in given.rows.split(",")] if given.rows else list(ROWS)
    common: dict[str, Any] = {
        "samples": samples, "sample_bytes": _SAMPLE_BYTES, "nodes": NODES, "storage": _STORAGE,
        "link": _LINK, "reads_per_s": _READS, "cache": _CACHE,
    }  # fmt: skip

    def record(part: str, result: dict[str, Any]) -> None:
        if not given.quick:
            _harness.record("side_by_side", {**common, "part": part, **result})

    for row in chosen if given.part in (None, "rows") else ():
        run = _run(pack, _spec(row, samples, training=given.epochs))
        print(f"| {row.name} | {_shown(run)} |", flush=True)
        window = row.window(samples)
        record("row", {"row": row.name, "batch": _BATCH, "window": window, **run})
    for row in chosen if given.part in (None, "quality") else ():
        quality = {"here": _qualities(row, samples, _BATCH, _SEEDS)}
        if not given.quick:
            quality["paper"] = _qualities(row, _PAPER_SAMPLES, _PAPER_BATCH, _SEEDS[:1])
        print(f"| {row.name} | {quality} |", flush=True)
        record("quality", {"row": row.name, "window": row.window(samples), "quality": quality})
    if given.part in (None, "homes"):
        for cell in given.cells.split(","):
            slower, batch = map(int, cell.split(":"))
            rounds = _in_turns(pack, samples, slower, batch, 1 if given.quick else given.rounds)
            record("homes", {"slower": slower, "batch": batch, "rounds": rounds})
    if given.part is None and given.rows is None and not given.quick:
        side_by_side_report.write()


if __name__ == "__main__":
    main()
