"""Rinas's ladder (arXiv 2312.02368) on one machine, with less memory than data.

    python benchmarks/formats/rinas_ladder.py [--quick] [--data FOLDER] [--only TEXT]

Text: rows of 512 tokens and a mask that `datasets` saved:

- hf: `datasets` with torch's DataLoader, shuffled: the default;
- plane: Rinas's data plane alone, rows by number out of an Arrow file with a footer;
- planes: with its control plane, too: a thread a sample fetches a batch, samples in the order of
  arrival;
- exact, epoch: Headrace on what `datasets` saved, as it is; `exact` in order;
- ray-train, ray-data: `hf` wrapped by Ray Train, and Ray Data (rinas_ray.py).

Images: a folder of JPEG files of about 100 KB, crop and flip:

- torch: its DataLoader with transforms by Pillow;
- arriving: the same with a thread a sample, in the order of arrival;
- exact-images, epoch-images: Headrace.

Each rung is measured by batch, from 32 to 256. Beside: by the size of the data, up to four times
the memory that is left for it (elsewhere it is four times); by the number of torch's workers; by
the threads of the control plane; and the data plane by the rows of a record batch, mapped and read.

A rung runs in a process of its own in a memory control group, page cache included. Before each
measurement files are evicted, and the page cache is filled with one part in `size` of the data.
After the warm-up the group's limit is what the processes take then and as much; of it Headrace's
own memory is a part. Loaders of torch run with the number of workers that was fastest in the same
process. Rounds go through all rungs, each in an order of its own, and each ratio is of one round.
After two rounds none begins that would end later than 14 minutes after the first one's begin. Needs
root and cgroup v1; elsewhere it says so and measures nothing. Packages come from
tools/package_env.py.

Goals: batches of 32 of text 1.5 times as fast as `hf`, of images 1.8 times as `torch`, and `exact`
never slower than samples in the order of arrival.

Discard rule, fixed beforehand: a round while which the host took more than 2 % of the processors is
repeated, as often at most as asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness
from _reports import rinas_report

from package_env import package_env

RUNGS = Path(__file__).with_name("rinas_rungs.py")
RAY = Path(__file__).with_name("rinas_ray.py")

BATCHES = (32, 64, 128, 256)
IMAGE_BATCHES = (32, 128)
SIZE = 4.0  # the data, in multiples of the memory for it
SIZES = (0.5, 2.0)  # beside it
WORKERS = (0, 2, 4)
POOLS = (4, 16, 64)  # beside the batch, 256
BATCH_ROWS = (10, 100, 1000)  # of a record batch; datasets has 1000
_STEAL_MAX = 0.02
_MINUTES = 14  # that rounds take in all, unless two take longer
_MEMORY_MIN = 64 * 2**20  # of Headrace, else an eighth of the data
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Rung:
    """A loader, what it reads, and how it is measured."""

    name: str
    path: Path
    cells: list[dict[str, Any]]
    script: Path = RUNGS
    loader: str = ""  # of rinas_rungs.py; the name, unless it is given

    @property
    def files(self) -> list[Path]:
        """All that it reads."""
        if self.path.is_dir():
            return sorted(found for found in self.path.rglob("*") if found.is_file())
        return [self.path]


def _cell(batch: int, size: float = SIZE, **options: Any) -> dict[str, Any]:
    """A measurement; without `workers` with the fastest number."""
    return {"batch": batch, "size": size, "workers": None, **options}


def _sizes(**options: Any) -> list[dict[str, Any]]:
    return [_cell(BATCHES[0], size, **options) for size in SIZES]


def _workers() -> list[dict[str, Any]]:
    return [_cell(BATCHES[0], workers=count) for count in WORKERS]


def _ways() -> list[dict[str, Any]]:
    return [_cell(BATCHES[0], workers=0, how=how) for how in ("map", "read")]


def _by_batch(batches: tuple[int, ...] = BATCHES, **options: Any) -> list[dict[str, Any]]:
    return [_cell(batch, **options) for batch in batches]


def text_rungs(saved: Path, converted: dict[int, Path], memory: int) -> list[Rung]:
    """Rungs on `saved`, and on files with so many rows a record batch."""
    pools = [_cell(BATCHES[-1], pool=pool) for pool in POOLS]
    reads = [
        Rung(f"plane-{rows}", path, _ways(), loader="plane") for rows, path in converted.items()
    ]
    ray = [_cell(batch) for batch in (BATCHES[0], BATCHES[-1])]
    return [
        Rung("hf", saved, [*_workers(), *_by_batch(), *_sizes()]),
        Rung("plane", converted[1000], [*_workers(), *_by_batch()]),
        Rung("planes", converted[1000], [*_workers(), *_by_batch(), *_sizes(), *pools]),
        Rung("exact", saved, [*_by_batch(memory=memory), *_sizes(memory=memory)]),
        Rung("epoch", saved, _by_batch(memory=memory)),
        *reads,
        Rung("ray-train", saved, [*_workers(), *ray], RAY),
        Rung("ray-data", saved, ray, RAY),
    ]


def image_rungs(folder: Path, memory: int) -> list[Rung]:
    own = _by_batch(IMAGE_BATCHES, memory=memory)
    return [
        Rung("torch", folder, [*_workers(), *_by_batch(IMAGE_BATCHES)]),
        Rung("arriving", folder, [*_workers(), *_by_batch(IMAGE_BATCHES)]),
        Rung("exact-images", folder, own),
        Rung("epoch-images", folder, own),
    ]


def _command(script: Path, *arguments: object, **options: Any) -> str:
    names = ("loaders", "trainers", *(("ray",) if script == RAY else ()))
    packages = [str(package_env(name)) for name in names]
    inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([*packages, *inherited]),
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, **options,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _text(root: Path, rows: int) -> list[Rung]:
    folder = root / f"rinas-text-{rows}"
    saved = folder / "saved"
    converted = {count: folder / f"rows-{count}.arrow" for count in BATCH_ROWS}
    if not converted[BATCH_ROWS[-1]].exists():
        print(f"making {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _command(RUNGS, "write", rows, saved)
        for count, path in converted.items():
            part = folder / "part"
            _command(RUNGS, "convert", saved, part, count)
            part.rename(path)
        os.sync()
    data_bytes = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
    return text_rungs(saved, converted, max(_MEMORY_MIN, data_bytes // 8))


def _measure(rung: Rung, seconds: float) -> list[dict[str, Any]]:
    """Its cells, with their rates."""
    spec = {
        "rung": rung.loader or rung.name, "path": str(rung.path), "cells": rung.cells,
        "files": list(map(str, rung.files)), "seconds": seconds, "seed": random.randrange(2**32),
    }  # fmt: skip
    with _harness.MemoryGroup() as group:
        spec["limit"] = str(group.limit_file)
        text = _command(rung.script, "run", input=json.dumps(spec), preexec_fn=group.join)
    return [json.loads(line) | {"rung": rung.name} for line in text.splitlines() if line[:1] == "{"]


def _rounds(rungs: list[Rung], rounds: int, seconds: float) -> dict[str, Any]:
    kept: list[list[dict[str, Any]]] = []
    discarded = 0
    until, longest = time.monotonic() + _MINUTES * 60, 0.0
    while len(kept) < rounds and discarded <= rounds:
        if len(kept) + discarded > 1 and kept and time.monotonic() + longest > until:
            break
        steal, begin = _harness.steal_share(), time.monotonic()
        found = []
        for rung in random.sample(rungs, len(rungs)):
            try:
                cells = _measure(rung, seconds)
            except RuntimeError as error:  # Ended for want of memory: the round goes on without.
                print(f"{rung.name}: {error}", flush=True)
                continue
            shown = ", ".join(f"{rinas_report.label(cell)}: {cell['rate']:.0f}" for cell in cells)
            print(f"{rung.name}: {shown}", flush=True)
            found.extend(cells)
        keep = steal() <= _STEAL_MAX
        longest = max(longest, time.monotonic() - begin)
        print(f"{'kept' if keep else 'discarded'}, {time.monotonic() - begin:.0f} s", flush=True)
        if keep:
            kept.append(found)
        else:
            discarded += 1
    if not kept:
        raise SystemExit("every round was discarded: the machine is too busy to measure on")
    return {"discarded": discarded, "rounds": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--rows", type=int, default=600_000, help="of text: 1.5 GB")
    parser.add_argument("--megabytes", type=int, default=1000, help="of images")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.2, help="of each measurement")
    parser.add_argument("--only", default="", help="rungs whose names have this in them")
    parser.add_argument("--make", action="store_true", help="only makes the data")
    parser.add_argument("--page", action="store_true", help="measures nothing: writes the page")
    parser.add_argument("--quick", action="store_true", help="a round of little: to see it work")
    given = parser.parse_args()
    if given.page:
        rinas_report.write()
        return
    if not _harness.can_limit_memory():
        print("needs root, and cgroup v1 with the memory controller: nothing was measured")
        return
    if given.quick:
        given.rows, given.megabytes, given.rounds, given.seconds = 20_000, 40, 1, 0.1
    images = _data.image_data(given.data, given.megabytes * 10**6).folder
    memory = max(_MEMORY_MIN, given.megabytes * 10**6 // 8)
    rungs = [*_text(given.data, given.rows), *image_rungs(images, memory)]
    if given.make:
        return
    result = _rounds(
        [rung for rung in rungs if given.only in rung.name], given.rounds, given.seconds
    )
    sizes = {"text": given.rows * rinas_report.ROW_BYTES, "images": given.megabytes * 10**6}
    if given.quick:
        if not given.only:
            print(rinas_report.tables(result | {"bytes": sizes, "machine": "", "date": ""}))
        return
    _harness.record("rinas_ladder", result | {"bytes": sizes, "whole": not given.only})
    if not given.only:
        rinas_report.write()


if __name__ == "__main__":
    main()
