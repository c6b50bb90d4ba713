"""Rungs of rinas_ladder.py that run under Ray, on one worker of this machine.

    python benchmarks/formats/rinas_ray.py < JSON

- ray-train: `datasets` with torch's DataLoader, which `ray.train.torch` wraps;
- ray-data: Ray Data of the same rows, shuffled in a window of four batches. It converts and holds
  all of them first, where the paper ran out of memory.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import ray
import ray.data
import ray.train
import ray.train.torch
import rinas_rungs

_STORE_BYTES = 200 * 10**6
_WINDOW = 4  # batches that are shuffled


class _RayData:
    """An iteration is an epoch."""

    def __init__(self, path: str, batch: int) -> None:
        import datasets

        self._rows = ray.data.from_huggingface(datasets.load_from_disk(path))
        self._batch = batch

    def __iter__(self) -> Iterator[Any]:
        return iter(
            self._rows.iter_torch_batches(
                batch_size=self._batch, local_shuffle_buffer_size=_WINDOW * self._batch
            )
        )


def _trained(spec: dict[str, Any]) -> None:
    """What the worker runs."""

    def loader_of(rung: str, path: str, cell: dict[str, Any]) -> Any:
        return ray.train.torch.prepare_data_loader(rinas_rungs.loader_of("hf", path, cell))

    with open(spec["out"], "w", encoding="utf-8") as out:
        for line in rinas_rungs.run(spec, loader_of):
            print(line, file=out, flush=True)


def main(spec: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-ray-") as folder:
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
            object_store_memory=_STORE_BYTES, logging_level="ERROR",
        )  # fmt: skip
        if spec["rung"] == "ray-train":
            spec["out"] = f"{folder}/lines"
            ray.train.torch.TorchTrainer(
                _trained,
                train_loop_config=spec,
                scaling_config=ray.train.ScalingConfig(num_workers=1),
                run_config=ray.train.RunConfig(storage_path=folder),
            ).fit()
            print(Path(spec["out"]).read_text(encoding="utf-8"), flush=True)
        else:
            ray.data.DataContext.get_current().enable_progress_bars = False
            for line in rinas_rungs.run(spec, lambda _, path, cell: _RayData(path, cell["batch"])):
                print(line, flush=True)
        ray.shutdown()


if __name__ == "__main__":
    main(json.load(sys.stdin))
