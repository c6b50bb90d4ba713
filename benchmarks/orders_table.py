"""`redox` against `epoch` at equal peak bytes: quality, bytes from storage, seconds.

    python benchmarks/orders_table.py [--quick] [--data FOLDER]

Writes the table of docs/orders.md. Every order is measured with the same groups, the units of 64
samples that lie together on storage, whatever blocks it reads; variance inflation also with its own
blocks. `epoch` gets for its pool what `redox` was measured to have resident at its peak, seed by
seed. Quality is planned, without data, over epochs 1 and 2 (so apart from the start of the run).

Bytes and seconds are a real loader's, on a pack of samples of about 100 KB, cold, past the page
cache, no decoding, all with the same memory, which leaves nothing over to pin blocks in. Bytes and
reads are means of three epochs; seconds are the second's, under a limit of 400 MB/s and 1,500
reads/s where that is possible (root, cgroup v1), else left out. Beside them the time in which the
roofline program reads as many bytes from begin to end. Of a chunk the loader reads what `redox`
keeps; the papers read whole chunks, which is counted from the same plan, and its time computed from
the limits.

Discard rule, fixed beforehand: a round whose rooflines before and after differ by more than 1.15.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import _data
import _harness
import numpy as np
from _reports import orders_markdown
from roofline.bound import Roofline

import headrace as hr
from headrace import _core
from headrace.cli._parts.orders import global_ids
from headrace.pack import PackParameters, write_pack

UNIT = 64  # samples that lie together on storage: chunks of `redox`, groups of all measures
_CHUNKS_PER_VIRTUAL = 10
_EPOCH_BLOCKS = (64, 16, 8)
_BATCH = 256
_BATCH_RANKS = 8  # of the order `batch`, which on one rank is `exact`
_THROTTLE = _harness.Throttle(400 * 10**6, 1500)
_READ_BATCH = 64
_FLOW_BYTES = 64 * 2**20  # of the loader's memory, for reads and batches
_BOUND_SPREAD_MAX = 1.15


@dataclass(frozen=True)
class Case:
    """A column of the table."""

    order: str
    block_samples: int = UNIT

    @property
    def name(self) -> str:
        """For people."""
        return f"epoch, {self.block_samples}" if self.order == "epoch" else self.order


CASES = (Case("exact"), Case("batch"), Case("redox"), *(Case("epoch", b) for b in _EPOCH_BLOCKS))


def _stream(case: Case, samples: int, seed: int, costs: Any, peak: int) -> list[Any]:
    """Of each rank, from epoch 1 on."""
    parameters: dict[str, int | str] = {}
    if case.order == "redox":
        parameters = {"chunks_per_virtual": _CHUNKS_PER_VIRTUAL}
    elif case.order == "epoch":
        parameters = {"pool_bytes": peak}
    ranks = _BATCH_RANKS if case.order == "batch" else 1
    blocks = _core.Blocks.uniform(samples, case.block_samples)
    return [
        _core.OrderStream(
            case.order, parameters, index=blocks, batch_size=_BATCH // ranks, world_size=ranks,
            rank=rank, seed=seed, epoch=1, epochs=3, costs=costs if case.order == "batch" else None,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def _quality(case: Case, samples: int, seed: int, peak: int) -> dict[str, Any]:
    """Every measure, of epochs 1 and 2."""
    costs = (
        np.random.default_rng(0).lognormal(np.log(_data.MEAN_BYTES), 0.5, samples).astype(np.uint32)
    )
    streams = _stream(case, samples, seed, costs, peak)
    padded = -samples % len(streams)
    epochs = np.split(np.concatenate(list(global_ids(streams, _BATCH))), 2)
    meters = {
        size: _core.QualityMeter(
            _core.Blocks.uniform(samples, size), batch=_BATCH, padded=padded, costs=costs
        )
        for size in {UNIT, case.block_samples}
    }
    for meter in meters.values():
        asked = _stream(Case("exact"), samples, seed, None, 0)[0]
        for ids in epochs:
            meter.add(ids)
            if case.order == "redox":
                meter.add_requested(asked.ids(asked.steps_per_epoch))
            meter.end_epoch()
    report = meters[UNIT].report()
    values = {name: report[name] for name in ("missing", "duplicated", "unknown")}
    values |= {test["name"]: test["value"] for test in report["tests"]} | report["more"]
    own = meters[case.block_samples].report()["vif"]
    values |= {f"own_vif_{window}": value for window, value in own.items()}
    counters = streams[0].counters()
    peak_name = "peak_resident_bytes" if case.order == "redox" else "resident_units_peak"
    return {
        "values": {name: float(f"{value:.6g}") for name, value in values.items()},
        "uniform": {
            test["name"]: {key: test[key] for key in ("id", "expected", "low", "high")}
            for test in report["tests"]
        },
        "verdict": report["verdict"],
        "equivalent_buffer": report["equivalent_buffer"],
        "peak": int(counters.get(peak_name, 0)),
        "loads_per_chunk": counters.get("loads_per_chunk"),
    }


def measure_quality(samples: int, seeds: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    """By column, a result for each seed."""
    results: dict[str, list[dict[str, Any]]] = {case.name: [] for case in CASES}
    for seed in seeds:
        peak = 0
        for case in CASES:
            result = _quality(case, samples, seed, peak)
            if case.order == "redox":
                peak = result["peak"]  # `epoch` comes after it
            assert result["peak"] <= peak, f"{case.name} had more resident than redox"
            results[case.name].append(result)
            vif = result["values"][f"vif_{_BATCH}"]
            print(f"seed {seed}, {case.name}: inflation at the batch {vif:.4f}", flush=True)
    return results


def _plan_redox(pack: Path, seed: int) -> dict[str, Any]:
    """What `redox` has resident on this pack, and reads. In a child: it maps the index."""
    dataset = hr.open(pack)
    blocks = _core.Blocks.of_index(dataset.index)
    stream = _core.OrderStream(
        "redox", {"chunks_per_virtual": _CHUNKS_PER_VIRTUAL},
        index=blocks, batch_size=_READ_BATCH, seed=seed, epochs=3,
    )  # fmt: skip
    stream.ids()
    counters = stream.counters()
    stored = _core.stored_bytes(dataset.index)
    return {
        "peak": int(counters["peak_resident_bytes"]),
        "loads_per_chunk": counters["loads_per_chunk"],
        "chunks": blocks.block_count,
        "dataset_bytes": int(np.sum(stored, dtype=np.uint64)),
        "largest_sample": int(np.max(stored)) + blocks.unit_bytes,
    }


def _order(case: Case, plan: dict[str, Any]) -> hr.orders.Order | str:
    if case.order == "redox":
        # As much as it had without a limit, and what a limit keeps free: the same plan, but the
        # loader need not set aside memory for slots that are never full together.
        return hr.orders.Redox(
            chunks_per_virtual=_CHUNKS_PER_VIRTUAL, memory=plan["peak"] + plan["largest_sample"]
        )
    if case.order == "epoch":
        return hr.orders.Epoch(pool=plan["peak"], block_samples=case.block_samples)
    return case.order


def _read(pack: Path, case: Case, plan: dict[str, Any], seed: int) -> dict[str, Any]:
    """Three epochs."""
    _throttle().join(pack)
    ends: list[float] = []
    delivered = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of labels, which lie in source order
        loader = hr.Loader(
            pack, _READ_BATCH, output=hr.Output("numpy", fields=["image"]),
            order=_order(case, plan), seed=seed, epochs=3,
            memory=plan["peak"] + plan["largest_sample"] + _FLOW_BYTES,
        )  # fmt: skip
    with loader:
        for _ in range(3):
            for (rows,) in loader:
                delivered += sum(row.nbytes for row in rows)
            ends.append(time.perf_counter())
        stats = loader.stats()
    assert stats["bytes"]["pinned"] == 0, "memory was left over for pinned blocks"
    return {
        "seconds": ends[1] - ends[0],
        "bytes_read": stats["bytes"]["read"] / 3,
        "bytes_device": (stats["bytes"]["device"] or 0) / 3,
        "bytes_delivered": delivered / 3,
        "reads": (stats["io"]["reads"] or 0) / 3,
        "resident_peak": stats["memory"]["resident_peak"],
    }


def _throttle() -> _harness.Throttle:
    return _THROTTLE if _harness.can_throttle() else _harness.Throttle()


def _bound(shards: list[Path]) -> dict[str, Any]:
    _throttle().join(shards[0])
    return {"MB_per_s": Roofline(shards, 2**20).run_sequential(16, 2.0)}


def measure_storage(pack: Path, rounds: int) -> dict[str, Any]:
    """By column the runs that were kept, and the plan of each round."""
    files = sorted(path for path in pack.rglob("*") if path.is_file())
    shards = [path for path in files if path.suffix == ".arrow"]
    results: dict[str, Any] = {case.name: [] for case in CASES}
    plans: list[dict[str, Any]] = []
    discarded = 0
    while len(plans) < rounds:
        if discarded > rounds:
            raise SystemExit("too many rounds were discarded: the machine is too busy")
        plan = _harness.in_child(_plan_redox, pack, len(plans))
        plan["roofline"] = [_harness.in_child(_bound, shards)["MB_per_s"]]
        runs = {}
        for case in CASES:
            _harness.make_cold(files)
            runs[case.name] = run = _harness.in_child(_read, pack, case, plan, len(plans))
            print(
                f"round {len(plans)}, {case.name}: {run['seconds']:.2f} s, "
                f"{run['bytes_read'] / plan['dataset_bytes']:.3f} of the data in "
                f"{run['reads']:,.0f} reads, {run['resident_peak'] / 1e6:.1f} MB resident",
                flush=True,
            )
        plan["roofline"].append(_harness.in_child(_bound, shards)["MB_per_s"])
        if max(plan["roofline"]) > _BOUND_SPREAD_MAX * min(plan["roofline"]):
            print(
                f"discarded: roofline {plan['roofline'][0]:.0f} and {plan['roofline'][1]:.0f} MB/s"
            )
            discarded += 1
            continue
        plans.append(plan)
        for name, run in runs.items():
            results[name].append(run)
    return {
        "runs": results,
        "plans": plans,
        "discarded": discarded,
        "throttled": _harness.can_throttle(),
        "load": round(median(os.getloadavg()), 2),
    }


def _pack(data: _data.BenchData) -> Path:
    """In the folder's order, in blocks of a unit."""
    pack = data.folder.parent / f"source-{UNIT}.pack"
    if not pack.exists():
        parameters = PackParameters(order="source", block_samples=UNIT)
        write_pack(hr.open(data.folder), pack, parameters)
        os.sync()
    return pack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--size", type=int, default=1000, help="MB of samples that are read")
    parser.add_argument(
        "--samples", type=int, default=1_280_640, help="number of samples for quality"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small, and writes nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.size, arguments.samples = 300, 164_000
        arguments.seeds, arguments.rounds = 1, 1

    pack = _pack(_data.raw_data(arguments.data, arguments.size * 10**6))
    quality = measure_quality(arguments.samples, range(1, arguments.seeds + 1))
    nulls = [run.pop("uniform") for runs in quality.values() for run in runs]
    storage = measure_storage(pack, arguments.rounds)
    result = {
        "samples": arguments.samples, "unit": UNIT, "batch": _BATCH, "seeds": arguments.seeds,
        "chunks_per_virtual": _CHUNKS_PER_VIRTUAL, "columns": [case.name for case in CASES],
        "limits": (_THROTTLE.bytes_per_s, _THROTTLE.reads_per_s),
        "uniform": nulls[0], "quality": quality, "storage": storage,
    }  # fmt: skip
    if arguments.quick:
        print(orders_markdown.table(result))
        return
    recorded = _harness.record("orders_table", result)
    orders_markdown.write(recorded)


if __name__ == "__main__":
    main()
