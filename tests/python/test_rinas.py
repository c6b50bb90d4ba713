"""What Rinas (arXiv 2312.02368) promises of its data plane: memory of conversion.

Its control plane: torch_loader/test_map_arrival.py; gradients: torch_loader/test_map_gradients.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

CONVERT = Path(__file__).with_name("memory_runs") / "convert.py"
BOUND = 100 * 10**6
ROW = 64 * 1024
ROWS_A_BATCH = 256
BATCHES = 20  # of 16 MiB each: more than three times the bound


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def batches() -> Iterator[pa.RecordBatch]:
    draw = np.random.default_rng(0)
    data = draw.bytes(ROWS_A_BATCH * ROW)
    for number in range(BATCHES):
        rows = [data[at : at + ROW] for at in range(0, len(data), ROW)]
        labels = pa.array([number] * ROWS_A_BATCH, pa.int64())
        yield pa.record_batch([pa.array(rows, pa.binary()), labels], ["data", "label"])


def memory_of(what: str, source: Path, target: Path) -> int:
    """The peak of anonymous memory above what the interpreter and its modules take."""
    command = [sys.executable, str(CONVERT), what, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_hugging_face_dataset_is_packed_in_100_mb(tmp_path: Path) -> None:
    path = tmp_path / "data.arrow"
    first, *rest = batches()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, first.schema) as writer:
        for batch in (first, *rest):
            writer.write_batch(batch)
    del first, rest
    assert path.stat().st_size > 3 * BOUND
    assert memory_of("index", path, tmp_path / "a") < BOUND / 4
    assert memory_of("pack", path, tmp_path / "b") < BOUND


def test_parquet_is_indexed_in_100_mb_and_a_row_group(tmp_path: Path) -> None:
    """Whatever the number of files that are read at a time."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number, batch in enumerate(batches()):
        pa.parquet.write_table(pa.table(batch), folder / f"{number:02}.parquet")
    assert memory_of("index", folder, tmp_path / "a") < BOUND + ROWS_A_BATCH * ROW


def test_parquet_of_large_row_groups_is_indexed_in_what_the_page_says(tmp_path: Path) -> None:
    """45 MB and three and a half times the bytes of the largest column of a row group.

    No two values are equal, so the dictionary has all of them; pyarrow holds it several times.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    rows = 4 * ROWS_A_BATCH
    data = np.random.default_rng(0).bytes(rows * ROW)
    values = pa.array([data[at : at + ROW] for at in range(0, len(data), ROW)], pa.binary())
    table = pa.table({"data": values, "label": pa.array([0] * rows, pa.int64())})
    for number in range(2):
        pa.parquet.write_table(table, folder / f"{number}.parquet")
    assert memory_of("index", folder, tmp_path / "a") < 45 * 10**6 + 3.5 * rows * ROW
