"""What Accelerate knows of this process."""

from __future__ import annotations

import sys
from typing import Any


def running_state() -> Any:
    """Accelerate's state; None if there is none. Imports nothing."""
    module: Any = sys.modules.get("accelerate.state")
    for name in ("AcceleratorState", "PartialState"):
        kind: Any = getattr(module, name, None)
        if getattr(kind, "_shared_state", None):
            return kind()
    return None


def processes_of(state: Any) -> tuple[int, int]:
    """The data-parallel processes of Accelerate's state, and how many get the same batches."""
    parallel = getattr(state, "parallelism_config", None)
    same = int(parallel.non_data_parallel_size) if parallel is not None else 1
    return int(state.num_processes) // same, same
