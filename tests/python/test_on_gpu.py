"""Trainers on a GPU, with the packages that are installed; skipped without a GPU.

Copies to a GPU: test_device_batches.py. Pinned memory: torch_loader/test_same_as_torch.py.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from rank_scripts import environment, free_port, run_script

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
SCRIPT = Path(__file__).parent / "trainers" / "on_gpu.py"


@pytest.mark.parametrize(
    "case", ["accelerate", "accelerate-fsdp", "lightning-fsdp", "transformers"]
)
def test_an_epoch_through_a_trainer_has_each_sample_once_on_the_gpu(
    case: str, numbered: Path, tmp_path: Path
) -> None:
    package = case.partition("-")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    env = environment(
        RANK=0, WORLD_SIZE=1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1,
        MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(),
    )  # fmt: skip
    del env["CUDA_VISIBLE_DEVICES"], env["ACCELERATE_USE_CPU"]
    ended = run_script(SCRIPT, numbered, case, env=env, folder=tmp_path)
    assert ended.code == 0, ended.err[-4000:]
