"""Other loaders of tokens for token_windows.py, in the environment that has their package.

    python token_peers.py write litdata|streaming TOKENS FOLDER WINDOW
    python token_peers.py read litdata|streaming FOLDER WINDOW BATCH WORKERS SECONDS

`read` prints a line of JSON: windows a second, from the second epoch on. A batch is int64.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

import numpy as np
import torch
from loaders.mosaicml_streaming import _replace_unused

_ITEM_TOKENS = 2**20
_CHUNK_BYTES = 64 * 10**6


def write_litdata(tokens: Any, folder: str, window: int) -> None:
    """Chunks for its TokensLoader."""
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    sink = BinaryWriter(folder, chunk_bytes=_CHUNK_BYTES, item_loader=TokensLoader(window))
    for number, first in enumerate(range(0, len(tokens), _ITEM_TOKENS)):
        sink[number] = np.array(tokens[first : first + _ITEM_TOKENS])
    sink.done()
    sink.merge()


def read_litdata(folder: str, window: int, batch: int, workers: int) -> Any:
    """Its token loader: windows that do not cross chunks."""
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.item_loader import TokensLoader

    dataset = StreamingDataset(folder, item_loader=TokensLoader(window), shuffle=True)
    return StreamingDataLoader(
        dataset,
        batch_size=batch,
        num_workers=workers,
        collate_fn=_widened,
        persistent_workers=workers > 0,
    )


def write_streaming(tokens: Any, folder: str, window: int) -> None:
    """A window a sample."""
    _replace_unused()
    from streaming import MDSWriter

    with MDSWriter(out=folder, columns={"tokens": f"ndarray:uint16:{window}"}) as sink:
        for row in tokens[: len(tokens) // window * window].reshape(-1, window):
            sink.write({"tokens": np.array(row)})


def read_streaming(folder: str, window: int, batch: int, workers: int) -> Any:
    """Its default shuffle."""
    _replace_unused()
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()  # of runs that were ended
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=batch)
    return DataLoader(
        dataset,
        batch_size=batch,
        num_workers=workers,
        collate_fn=_widened,
        persistent_workers=workers > 0,
    )


def _widened(samples: list[Any]) -> Any:
    """Windows as one tensor of int64."""
    rows = [each["tokens"] if isinstance(each, dict) else each for each in samples]
    return torch.from_numpy(np.stack([np.asarray(each) for each in rows]).astype(np.int64))


WRITE = {"litdata": write_litdata, "streaming": write_streaming}
READ = {"litdata": read_litdata, "streaming": read_streaming}


def measure(loader: Any, window: int, seconds: float) -> dict[str, float]:
    """Windows a second."""
    windows = 0
    for rows in loader:
        assert rows.dtype == torch.int64
        assert rows.shape[1] == window
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        for rows in loader:
            windows += len(rows)
            if time.perf_counter() - begin >= seconds:
                break
    return {"windows_per_s": windows / elapsed}


def main(action: str, name: str, *rest: str) -> None:
    torch.set_num_threads(1)
    if action == "write":
        path, folder, window = rest
        WRITE[name](np.memmap(path, np.uint16, "r"), folder, int(window))
        return
    folder, window, batch, workers, seconds = rest
    loader = READ[name](folder, int(window), int(batch), int(workers))
    print("\n" + json.dumps(measure(loader, int(window), float(seconds))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
