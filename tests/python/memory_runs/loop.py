"""A training loop for test_memory_peak: prints what `stats()` says of memory, as JSON."""

from __future__ import annotations

import json
import select
import sys
from typing import Any

import headrace as hr

FULL = 0.9
POLLS_MAX = 500
PAUSE_S = 0.01  # The threads that read ahead need the processor.


def as_float(sample: Any) -> Any:
    return sample.image.astype("float32"), sample.label


def loop(source: str, order: str, memory: str, workers: int, batch_size: int) -> dict[str, Any]:
    image: Any = hr.image.train(224)
    options: dict[str, Any] = {"transform": image}
    if workers:
        options = {"transform": (hr.image.resize(224, dtype="uint8"), as_float), "workers": workers}
    rows = 0
    with hr.Loader(
        source,
        batch_size,
        order=order,
        memory=memory,
        threads=4,
        seed=1,
        on_error="substitute",
        **options,
    ) as loader:
        for number, batch in enumerate(loader):
            rows += len(batch[1])
            if number == 1:  # Until all that can be read ahead has been.
                for _ in range(POLLS_MAX):
                    used = loader.stats()["memory"]
                    if used["batches"] >= FULL * used["batches_budget"] > 0:
                        break
                    select.select((), (), (), PAUSE_S)
        stats = loader.stats()
    memory_used: dict[str, Any] = dict(stats["memory"])
    return memory_used | {"rows": rows, "substituted": stats["substituted"]}


if __name__ == "__main__":
    source, order, memory, workers, batch_size = sys.argv[1:]
    print(json.dumps(loop(source, order, memory, int(workers), int(batch_size))))
