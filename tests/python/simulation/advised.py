"""A machine whose rates are round, a job on it, and candidates of an advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from loader_data import made_profile, rates

from headrace.profile import DecodeRates, Host, MachineProfile
from headrace.simulation import Advice, Candidate, Workload

MB = 1e6
SAMPLES, SIZE, BATCH = 8_000, 100_000, 20
BYTES = SAMPLES * SIZE


def machine(decode: float = 200 * MB, cpus: int = 2, **changes: Any) -> MachineProfile:
    """Single samples of 100 kB at 100 MB/s, blocks of 1 MB at 400, of 4 MB at 500; all threads
    decode `decode`, a folder gives 2 GB/s."""
    made = made_profile(
        Path("/nvme/cache"),
        storage={
            SIZE: ((1, 50 * MB), (64, 100 * MB)),
            1_000_000: ((1, 300 * MB), (16, 400 * MB)),
            4_000_000: ((1, 400 * MB), (16, 500 * MB)),
        },
        ram=((1, 20_000 * MB), (2, 40_000 * MB)),
        disk={65536: ((1, 1000 * MB), (4, 2000 * MB))},
    )
    of_threads = rates(tuple((n, decode * n / cpus) for n in range(1, cpus + 1)))
    return replace(
        made,
        host=Host(cpus=cpus, memory_bytes=2**33, kernel="none"),
        decode=DecodeRates(what="image.train(224)", sample_bytes=SIZE, rates=of_threads),
        **changes,
    )


def work(**changes: Any) -> Workload:
    job: dict[str, Any] = {
        "dataset": "none",
        "fingerprint": "none",
        "sizes": np.full(SAMPLES, float(SIZE)),
        "block_bytes": None,
        "batch_size": BATCH,
        "memory": 2**30,
        "epochs": 1,
    }
    return Workload(**job | changes)


def of(advice: Advice, order: str, **setup: Any) -> Candidate:
    """The candidate with all threads, of this setup."""
    wanted = {"tiers": (), **setup}
    found = [
        one
        for one in advice.candidates
        if one.setup.order == order
        and all(getattr(one.setup, name) == value for name, value in wanted.items())
    ]
    return max(found, key=lambda one: (one.setup.threads, one.setup.prefetch))
