"""What Accelerate knows of its processes, and what a TrainerLoader knows of its loader."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.errors import FailedPreconditionError


def processes_of(state: Any) -> tuple[int, int]:
    """The data-parallel processes of Accelerate's state, and how many get the same batches."""
    parallel = getattr(state, "parallelism_config", None)
    same = int(parallel.non_data_parallel_size) if parallel is not None else 1
    return int(state.num_processes) // same, same


class StepFacts(NamedTuple):
    """What does not change."""

    kind: str  # of the loader, for errors
    samples: int  # of its dataset
    batch_size: int | None
    total_batch_size: int | None  # of a step of all ranks
    drop_last: bool
    ranks: int  # that divide the samples
    rank: int


def check_place(kind: str, step: int, epoch: int, begins: int) -> None:
    """Raises if a loader that goes on after `begins` batches would skip others."""
    if begins and begins != step:
        raise FailedPreconditionError(
            f"skipping the first {step} batches of a {kind}: it goes on after batch "
            f"{begins} of epoch {epoch} already, by load_state_dict(): samples would be lost "
            "or repeated; do one of both; `headrace docs trainers`"
        )
